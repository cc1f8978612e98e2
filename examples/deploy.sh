#!/bin/sh
# A deployment in steps, under one lease: for a script that is more than one command, or that has to ask along the way whether
# it may still go on.
#
#     deploy.sh VERSION      with the steps as programs: $STEPS/fetch, $STEPS/migrate, $STEPS/switch
set -eu
version=${1:?usage: deploy.sh VERSION}
steps=${STEPS:-/etc/deploy.d}
key=deploy-production

# --while-pid: a background process renews the lease as long as this script lives, however it ends.
token=$(lockrun acquire --key "$key" --ttl 5m --wait 20m --while-pid $$)
trap 'lockrun release --key "$key" --token "$token" || echo "deploy: the lease was not ours any more" >&2' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# mine: nobody stops a script whose lease is lost (an operator broke it; the store was away for too long), so it asks
# before what must not happen twice. 79: somebody else may be at work.
mine() {
	lockrun renew --key "$key" --token "$token" || {
		code=$?
		echo "deploy: stopping before $1, the lease is not ours for certain ($code)" >&2
		exit "$code"
	}
}

"$steps/fetch" "$version"
mine migrate
"$steps/migrate" "$version" "$token" # the token rises with each deployment: a receiver can refuse a late one
mine switch
"$steps/switch" "$version" "$token"
echo "deployed $version under token $token"
