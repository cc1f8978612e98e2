package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestHelpIsAsWritten(t *testing.T) {
	text := generalHelp()
	for _, c := range commands() {
		text += "\n=== " + c.name + "\n" + verbHelp(c)
	}
	const path = "testdata/help.golden"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("help differs from %s; go test -run Help -update . rewrites it, then look at the difference:\n%s", path, text)
	}
}

func TestHelpTellsEverything(t *testing.T) {
	general := generalHelp()
	for name := range exitNames {
		if !strings.Contains(general, "    "+name+" ") {
			t.Errorf("help does not tell of the exit code %s", name)
		}
	}
	if len(exitHelp) != len(exitNames) {
		t.Errorf("%d exit codes are explained, of %d", len(exitHelp), len(exitNames))
	}
	for _, c := range commands() {
		if !strings.Contains(general, "\n    "+c.name+" ") {
			t.Errorf("help does not tell of %s", c.name)
		}
		for _, argv := range [][]string{{"help", c.name}, {c.name, "--help"}, {c.name, "-h"}} {
			if got := invoke(t, untouched(t), nil, argv...); got.code != 0 || got.out != verbHelp(c) || got.err != "" {
				t.Errorf("%q: %+v", argv, got)
			}
		}
	}
	if got := invoke(t, untouched(t), nil, "--help", "--", "x"); got.code != codeUsage {
		t.Errorf("help of a COMMAND: %+v", got)
	}
}

func TestHelpThatCannotBePrintedFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	errs, err := os.Create(t.TempDir() + "/err")
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	for _, argv := range [][]string{{"help"}, {"version"}, {"completion", "bash"}, {"status"}, {"acquire", "--key", "k"}} {
		store, open := inMemory()
		if code := dispatch(argv, IO{In: os.Stdin, Out: full, Err: errs}, open); code != codeNo {
			t.Errorf("%q: code %d", argv, code)
		}
		if states, err := store.Open().Status(t.Context(), "k"); err != nil || states[0].State != "free" {
			t.Errorf("%q: a lease whose token nobody knows stays: %+v, %v", argv, states, err)
		}
	}
	if text := contents(t, errs); !strings.Contains(text, "lockrun: cannot write to stdout: no space left on device\n") {
		t.Errorf("said %q", text)
	}
}
