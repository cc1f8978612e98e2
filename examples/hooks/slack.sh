#!/bin/sh
# Posts what became of a run to a webhook that takes {"text": "..."}, as those of Slack, Mattermost and Rocket.Chat do:
#
#     lockrun --key order-reconcile --hook 'failed=/etc/lockrun/hooks/slack.sh /etc/lockrun/slack.url' -- ...
#
# The file holds the webhook's address. That is a secret: it is handed to curl by a pipe, so that ps does not show it.
set -eu
file=${1:?usage: slack.sh FILE-WITH-THE-URL, with the run record on stdin}
url=$(head -n 1 "$file")
. "$(dirname "$0")/record.sh"
# What the record holds is JSON already. In Slack's markup <, > and & would make links and mentions: lockrun writes them as
# \u003c, \u003e and \u0026.
message=$(sentence | sed 's/\\u003c/\&lt;/g; s/\\u003e/\&gt;/g; s/\\u0026/\&amp;/g')
{
	printf 'url = "%s"\n' "$url"
	printf 'data-binary = "%s"\n' "$(printf '{"text":"%s"}' "$message" | sed 's/[\\"]/\\&/g')"
} | curl --config - --silent --show-error --fail --max-time 8 --header 'Content-Type: application/json' --output /dev/null
