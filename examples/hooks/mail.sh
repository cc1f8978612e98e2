#!/bin/sh
# Mails what became of a run:
#
#     lockrun --key order-reconcile --hook 'failed=/etc/lockrun/hooks/mail.sh ops@example.com' \
#         --hook 'lost=/etc/lockrun/hooks/mail.sh ops@example.com' -- /usr/local/bin/order-reconcile
#
# Cron's own mail says the same about a job that prints something; this one also comes from a systemd timer or a container.
# SENDMAIL names another program that takes a message with its headers on stdin.
set -eu
to=${1:?usage: mail.sh ADDRESS, with the run record on stdin}
. "$(dirname "$0")/record.sh"
subject=$(sentence | LC_ALL=C tr -c '\40-\176\n' '?' | cut -c 1-200)
{
	printf 'To: %s\nSubject: %s\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n' "$to" "$subject"
	printf 'Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n'
	sentence
	printf '\n%s\n' "$record"
} | ${SENDMAIL:-/usr/sbin/sendmail} -t -oi
