#!/bin/sh
# Work in 16 segments on any number of hosts, at most 10 of them at once over all hosts, each done once a day. Started at
# about the same time everywhere; a host that joins late, or that starts it again, does what is left.
#
#     segments.sh COMMAND [ARG...]      run as: COMMAND ARG... SEGMENT
#
# The run id names day and segment: done means skipped (76), and one that failed is tried again by the next start. The slots
# only bound how many run at once: which slot a segment gets says nothing about it.
set -u
segments=${SEGMENTS:-16} slots=${SLOTS:-10} day=${DAY:-$(date -u +%F)}
[ $# -gt 0 ] || { echo "usage: segments.sh COMMAND [ARG...]" >&2; exit 64; }

pids=
n=0
while [ "$n" -lt "$segments" ]; do
	# Done already, or being done by another host: both are fine. What is full is waited for.
	lockrun --key import --slots "$slots" --run-id "$day/$n" --wait "${WAIT:-2h}" --ttl 2m --exit-code done=0 -- "$@" "$n" &
	pids="$pids $!"
	n=$((n + 1))
done
failed=0
for pid in $pids; do
	wait "$pid" || failed=$((failed + 1))
done
[ "$failed" -eq 0 ] || { echo "segments: $failed of $segments failed; start it again for these" >&2; exit 1; }
