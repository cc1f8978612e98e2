# Read by the hooks beside it: takes the run record on stdin apart. It is one JSON object a line; text in it stays as
# JSON writes it, so that no newline, quote or control character of a key or a reason gets into what is made of it.

record=$(cat)

# text NAME: the field as it stands between its quotes; nothing where it is null.
text() { printf '%s\n' "$record" | sed -nE 's/.*[{,]"'"$1"'":"(([^"\\]|\\.)*)".*/\1/p'; }

# number NAME: the field's digits; nothing where it is null.
number() { printf '%s\n' "$record" | sed -nE 's/.*[{,]"'"$1"'":(-?[0-9.]+).*/\1/p'; }

event=${LOCKRUN_EVENT:-$(text outcome)}
key=$(text key)
holder=$(text holder)
reason=$(text reason)
code=$(number exit_code)

# sentence: what happened, in one line.
sentence() {
	printf 'lockrun: %s %s on %s' "$key" "$event" "${holder:-an unknown host}"
	[ -z "$code" ] || printf ', exit code %s' "$code"
	[ -z "$reason" ] || printf ' (%s)' "$reason"
	printf '\n'
}
