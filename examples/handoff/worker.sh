#!/bin/sh
# Does what handler.sh accepted: worker.sh TOKEN ORDER. Whoever has the token of a lease that was taken by "lockrun acquire" may
# renew it and give it back.
set -u
token=${1:?usage: worker.sh TOKEN ORDER} order=${2:?usage: worker.sh TOKEN ORDER}
key=order-$order work=${WORK:-/usr/local/bin/process-order}

# 79: the lease ran out before the work began, and another request may have been accepted since.
lockrun renew --key "$key" --token "$token" || exit $?
"$work" "$order" "$token" &
job=$!
# Renewed until the work ends. When the lease is lost for certain the work is stopped; while the store does not answer (69) it
# goes on for as long as it has been granted, which is what --ttl was chosen for.
while kill -0 "$job" 2>/dev/null; do
	sleep "${EVERY:-60}"
	kill -0 "$job" 2>/dev/null || break
	lockrun renew --key "$key" --token "$token"
	case $? in
	79) kill "$job"; wait "$job"; exit 79 ;;
	esac
done
wait "$job"
code=$?
lockrun release --key "$key" --token "$token" || exit $?
exit "$code"
