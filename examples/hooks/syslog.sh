#!/bin/sh
# Writes what became of a run to the system's log, where it is kept, searched and forwarded like everything else:
#
#     lockrun --key order-reconcile --hook 'failed=/etc/lockrun/hooks/syslog.sh' --hook 'skipped=/etc/lockrun/hooks/syslog.sh' -- ...
#
# What follows it goes to logger: syslog.sh -n loghost -P 514 -d
set -eu
. "$(dirname "$0")/record.sh"
case $event in
started | succeeded | done) level=info ;;
skipped) level=notice ;;
fallback) level=warning ;;
*) level=err ;;
esac
sentence | logger -t lockrun -p "cron.$level" "$@"
