#!/bin/bash
# A fault drill for operators: kills, freezes and partitions a throw-away Redis server under real jobs, and prints what
# happened. It starts and ends everything itself, on the loopback, in a folder of its own; nothing of yours is touched.
#
#     drill.sh              all drills, half a minute
#     drill.sh freeze ...   only these
#
# Needs lockrun, redis-server and redis-cli in PATH, and socat for the partition. TTL=6s (the default) is how long each lease
# lasts; take your job's own to see its times. Ends with 0 where lockrun did what it promises, else with 1.
set -u
ttl=${TTL:-6s}
here=$(mktemp -d)
server= relay= runs=() wrong=0 key=
export LOCKRUN_CONFIG= XDG_CONFIG_HOME=$here HOME=$here
unset LOCKRUN_BACKEND LOCKRUN_KEY LOCKRUN_OWNER

cleanup() {
	local p
	for p in $server $(relays) "${runs[@]}" $(cat "$here"/*.pid); do kill -CONT "$p" && kill -KILL "$p"; done 2>/dev/null
	wait 2>/dev/null
	rm -rf "$here"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s %s\n' "$(date +%T.%3N)" "$*"; }
promised() { say "  as promised: $*"; }
broken() { say "  BROKEN: $*"; wrong=1; }
need() { command -v "$1" >/dev/null || { echo "drill: $1 is missing; install it" >&2; exit 69; }; }
now() { date +%s%3N; }

# until WHAT SECONDS COMMAND...: repeats it until it succeeds; a failure ends the drill.
until_() {
	local what=$1 end=$(($(now) + $2 * 1000))
	shift 2
	while ! "$@" >/dev/null 2>&1; do
		[ "$(now)" -lt "$end" ] || { broken "$what: not in time"; return 1; }
		sleep 0.05
	done
}

start_server() {
	redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly yes --dir "$here" --logfile "$here/redis.log" &
	server=$!
	until_ "the server answers" 30 redis-cli -p "$port" ping || exit 69
}

# The relay stands for the network: frozen, it loses what is sent without telling anybody.
start_relay() {
	socat "TCP-LISTEN:$link,bind=127.0.0.1,reuseaddr,fork" "TCP:127.0.0.1:$port" 2>"$here/relay.err" &
	relay=$!
	until_ "the relay answers" 30 redis-cli -p "$link" ping || exit 69
}
relays() { [ -z "$relay" ] || { echo "$relay"; ps -o pid= --ppid "$relay"; }; }

# begin NAME [PORT]: a job that shows that it is alive, in a run of its own.
begin() {
	key=$1
	url=redis://127.0.0.1:${2:-$port}
	: >"$here/$key.alive"
	lockrun -b "$url" --key "$key" --ttl "$ttl" --backend-timeout 2s --result-file "$here/$key.json" -- \
		sh -c "echo \$\$ >$here/$key.pid; while :; do date +%s%3N >>$here/$key.alive; sleep 0.1; done" 2>"$here/$key.err" &
	run=$!
	runs+=("$run")
	until_ "the job runs" 30 test -s "$here/$key.alive"
	say "  a job holds $key: $(lockrun -b "redis://127.0.0.1:$port" status "$key" | tail -n 1)"
}

alive() { kill -0 "$(cat "$here/$key.pid")" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$(cat "$here/$key.pid")/status" 2>/dev/null; }
dead() { ! alive; }
last_sign() { tail -n 1 "$here/$key.alive"; }
first_sign() { head -n 1 "$here/$1.alive"; }

# stopped_in_time: the job was over before the next run of the key began.
successor() {
	local before
	begin_next
	before=$(last_sign)
	if [ "$before" -lt "$(first_sign next)" ]; then
		promised "the next run began $(($(first_sign next) - before)) ms after the last sign of life of the one before"
	else
		broken "two runs overlapped by $((before - $(first_sign next))) ms"
	fi
}
begin_next() {
	: >"$here/next.alive"
	lockrun -b "redis://127.0.0.1:$port" --key "$key" --ttl "$ttl" --wait 60s -- sh -c "date +%s%3N >>$here/next.alive" ||
		broken "the next run ended with $?"
}
ended_with() {
	local code
	wait "$run"
	code=$?
	if [ "$code" -eq "$1" ]; then promised "lockrun ended with $code: $(tail -n 1 "$here/$key.err")"; else broken "lockrun ended with $code, not $1"; fi
}

drill_kill() {
	say "kill: lockrun is killed with SIGKILL"
	begin kill
	kill -KILL "$run"
	local from
	from=$(now)
	until_ "the job is stopped by the guard" 5 dead && promised "the job was dead $(($(now) - from)) ms later"
	wait "$run" 2>/dev/null
	successor
	lockrun -b "redis://127.0.0.1:$port" history --outcome crashed kill | tail -n 1 | grep -q crashed && promised "the history tells of a crash" || broken "no crash in the history"
}

drill_freeze() {
	say "freeze: lockrun alone is frozen, past its lease"
	begin freeze
	kill -STOP "$run"
	until_ "the guard stops the job" 60 dead && promised "the guard stopped the job"
	successor
	kill -CONT "$run"
	wait "$run" 2>/dev/null
	[ $? -ne 0 ] && promised "woken up, lockrun told that the lease was lost" || broken "lockrun ended with 0"
}

drill_server() {
	say "server: the server is frozen, past the lease"
	begin server
	kill -STOP "$server"
	until_ "the job is stopped" 60 dead && promised "the job was stopped, since its lease could not be renewed"
	ended_with 79
	lockrun -b "$url" --key other --backend-timeout 1s -- true 2>"$here/other.err"
	[ $? -eq 69 ] && promised "another run ended with 69: $(cat "$here/other.err")" || broken "another run was not refused with 69"
	kill -CONT "$server"
	successor
}

drill_restart() {
	say "restart: the server is killed, and comes back before the lease has ended"
	begin restart
	kill -KILL "$server"
	wait "$server" 2>/dev/null
	start_server
	sleep 1
	alive && promised "the job went on" || broken "the job was stopped"
	kill -TERM "$run"
	ended_with 143
	successor
}

drill_partition() {
	command -v socat >/dev/null || { say "partition: left out, socat is missing"; return; }
	say "partition: the network between this host and the server loses everything"
	start_relay
	begin partition "$link"
	kill -STOP $(relays)
	until_ "the job is stopped" 60 dead && promised "the job was stopped before its lease ended"
	ended_with 79
	successor # another host still reaches the server
	kill -CONT $(relays)
	kill $(relays) 2>/dev/null
	wait "$relay" 2>/dev/null
	relay=
}

drill_unlock() {
	say "unlock: an operator breaks the lease of a running job"
	begin unlock
	lockrun -b "$url" unlock unlock --force
	until_ "the job is stopped" 60 dead && promised "the job was stopped at its next heartbeat"
	ended_with 79
}

need lockrun
need redis-server
need redis-cli
port=${PORT:-$((20000 + RANDOM % 5000))} link=$((port + 1))
start_server
all=(kill freeze server restart partition unlock)
[ $# -gt 0 ] || set -- "${all[@]}"
for d in "$@"; do
	declare -F "drill_$d" >/dev/null || { echo "drill: there is no drill $d; there are ${all[*]}" >&2; exit 64; }
	"drill_$d"
done
[ $wrong -eq 0 ] && say "all as promised" || say "something was not as promised"
exit $wrong
