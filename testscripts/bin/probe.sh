#!/bin/sh
# Proves that two jobs were never alive at the same time: the kernel drops the lock with the last process that has it, so
# orphans count. $PROBE names the file; an overlap is written into $PROBE.log.
exec 9>>"$PROBE"
flock -n 9 || echo "OVERLAP $$" >>"$PROBE.log"
sleep "$1"
