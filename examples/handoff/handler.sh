#!/bin/sh
# A request handler that answers at once and leaves the work to a background worker. The lease goes along with the work: the
# handler takes it, so that a second request for the same order is refused while the first is being worked on, and the worker
# keeps it alive and gives it back.
#
#     handler.sh ORDER        prints the answer; the worker is started by $SUBMIT TOKEN ORDER (a queue, systemd-run, at)
set -eu
order=${1:?usage: handler.sh ORDER}
submit=${SUBMIT:-"systemd-run --user $(dirname "$0")/worker.sh"}

# No --while-pid: this process ends before the work does. The TTL has to last until the worker begins to renew.
token=$(lockrun acquire --key "order-$order" --ttl "${TTL:-10m}") || {
	[ $? -eq 75 ] && echo "409 order $order is being worked on" && exit 0
	echo "503 try again later"
	exit 0
}
if $submit "$token" "$order"; then
	echo "202 order $order is accepted"
else
	lockrun release --key "order-$order" --token "$token"
	echo "503 try again later"
fi
