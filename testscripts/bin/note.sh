#!/bin/sh
# Writes down each signal that arrives, and that it is ready: note.sh READY-FILE LOG. USR2 ends it with exit code 9.
for s in HUP INT QUIT TERM USR1 WINCH CONT; do
	trap "echo $s >>'$2'" $s
done
trap "kill \$! 2>/dev/null; exit 9" USR2
echo $$ >"$1.part" && mv "$1.part" "$1"
while :; do
	sleep 1000 &
	wait $!
	kill $! 2>/dev/null
done
