package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestManPageTellsEveryOptionVerbAndCode(t *testing.T) {
	page := strings.ReplaceAll(manPage(), `\-`, "-")
	eachOption(vAny, func(o *option) {
		if !strings.Contains(page, "--"+o.name) {
			t.Errorf("the page lacks --%s", o.name)
		}
	})
	for _, c := range commands()[1:] {
		if !strings.Contains(page, ".SS lockrun "+c.name) {
			t.Errorf("the page lacks lockrun %s", c.name)
		}
	}
	for name := range exitNames {
		if !strings.Contains(page, "("+name+")") {
			t.Errorf("the page lacks the exit code %s", name)
		}
	}
}

// The formatter itself has nothing to complain about.
func TestManPageIsRead(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff")
	}
	cmd := exec.Command(groff, "-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-u")
	cmd.Stdin = strings.NewReader(manPage())
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("groff: %v: %s", err, complaints.String())
	}
	for _, want := range []string{"--key", "skipped", "lockrun status"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("what a reader sees lacks %q", want)
		}
	}
}

func TestWordsAreNoRequests(t *testing.T) {
	for in, want := range map[string]string{".so x": `\&.so x`, "'x": `\&'x`, `a\b`: `a\eb`, "--key": `\-\-key`} {
		if got := escaped(in); got != want {
			t.Errorf("escaped(%q) = %q, want %q", in, got, want)
		}
	}
}
