package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		line  string // words separated by spaces; _ is an empty word
		verb  string
		flags string
		args  string
	}{
		{"--key k -- echo hi", "run", "--key=k", "echo hi"},
		{"--key k echo hi", "run", "--key=k", "echo hi"},
		{"run -k k -- echo hi", "run", "--key=k", "echo hi"},
		{"--key=k -q -- status --json", "run", "--key=k --quiet=true", "status --json"},
		{"--key k -- help", "run", "--key=k", "help"},
		{"--key k -- -- x", "run", "--key=k", "-- x"},
		// Nothing after the first word of COMMAND is parsed, a later -- included.
		{"--key k printf --key other --help -- -v", "run", "--key=k", "printf --key other --help -- -v"},
		{"run --key k run -- x", "run", "--key=k", "run -- x"},
		{"--key -k -- x", "run", "--key=-k", "x"},
		// Options of verbs may stand anywhere before --.
		{"unlock k --token 3", "unlock", "--token=3", "k"},
		{"status --json a b", "status", "--json=true", "a b"},
		{"status a --json=false b", "status", "--json=false", "a b"},
		{"status -- -rf --json", "status", "", "-rf --json"},
		{"history -n 5 k", "history", "--limit=5", "k"},
		{"status -", "status", "", "-"},
		{"pause k --for 1d --reason _", "pause", "--for=1d --reason=", "k"},
		// A verb after options, where it can be nothing else.
		{"--config f status a --json", "status", "--config=f --json=true", "a"},
		{"-v status -- --", "status", "--verbose=true", "--"},
		{"--version", "version", "", ""},
		{"-h", "help", "", ""},
	} {
		argv := strings.Fields(c.line)
		for i := range argv {
			argv[i] = strings.ReplaceAll(argv[i], "_", "")
		}
		w, err := cut(argv)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if w.verb.name != c.verb || strings.Join(w.flags, " ") != c.flags || !slices.Equal(w.args, strings.Fields(c.args)) {
			t.Errorf("%s: %s, options %q, arguments %q", c.line, w.verb.name, w.flags, w.args)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	for _, c := range []struct{ line, why string }{
		{"--nonsense --key k -- x", "--nonsense is not an option of lockrun run"},
		{"--colour=secret -- x", "--colour is not an option of lockrun run"},
		{"status --ttl 5s", "--ttl is not an option of lockrun status"},
		{"--key -- x", "--key needs a value"},
		{"--key k status", "verb of lockrun as well as a COMMAND"},
		{"--ttl 5s status", "--ttl is not an option of lockrun status"},
		{"unlock k --token", "--token needs a value: --token N"},
	} {
		_, err := cut(strings.Fields(c.line))
		if err == nil || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.line, err)
		}
	}
}

func TestFlagsKeepWhatWasWritten(t *testing.T) {
	w, err := cut([]string{"--exit-code", "skipped=1,done=2", "--exit-code=lost=3", "-k", "a,b", "--", "x"})
	if err != nil {
		t.Fatal(err)
	}
	flags, err := parseFlags(w)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(flags["exit-code"], []string{"skipped=1,done=2", "lost=3"}) || !slices.Equal(flags["key"], []string{"a,b"}) {
		t.Errorf("flags %q", flags)
	}
}
