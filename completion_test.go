package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// completions are what bash offers for the last of these words.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	script := bashCompletion() + `
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_lockrun
printf '%s\n' "${COMPREPLY[@]}"
`
	cmd := exec.Command("bash", append([]string{"--norc", "-uc", script, "bash"}, words...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return strings.Fields(string(out))
}

func TestBashCompletion(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	for _, c := range []struct {
		line      string
		has, lack []string
	}{
		{"lockrun st", []string{"status"}, []string{"history"}},
		{"lockrun --t", []string{"--ttl", "--timeout"}, []string{"--token", "--key"}},
		{"lockrun unlock --", []string{"--token", "--force"}, []string{"--ttl"}},
		{"lockrun unlock k --to", []string{"--token"}, nil},
		{"lockrun --key st", nil, []string{"status"}},
		{"lockrun --key k --on-lost ", []string{"kill", "continue"}, []string{"leave"}},
		{"lockrun --exit-code sk", []string{"skipped="}, []string{"done="}},
		{"lockrun completion ", []string{"bash", "zsh", "fish"}, nil},
		{"lockrun help unl", []string{"unlock"}, nil},
		{"lockrun --key k -- ech", []string{"echo"}, nil},
		{"lockrun --key k ech", []string{"echo"}, nil},
		{"lockrun run --key k ech", []string{"echo"}, nil},
		{"lockrun --key k -- echo --t", nil, []string{"--ttl"}},
		{"lockrun --wait fo", []string{"forever"}, nil},
	} {
		got := completions(t, strings.Split(c.line, " ")...)
		for _, w := range c.has {
			if !slices.Contains(got, w) {
				t.Errorf("%q offers %q, without %s", c.line, got, w)
			}
		}
		for _, w := range c.lack {
			if slices.Contains(got, w) {
				t.Errorf("%q offers %s", c.line, w)
			}
		}
	}
}

func TestCompletionScriptsAreWellFormed(t *testing.T) {
	for shell, text := range map[string]string{"bash": bashCompletion(), "zsh": zshCompletion(), "fish": fishCompletion()} {
		if got := invoke(t, untouched(t), nil, "completion", shell); got.code != 0 || got.out != text || got.err != "" {
			t.Errorf("%s: code %d, stderr %q", shell, got.code, got.err)
		}
		eachOption(vAny, func(o *option) {
			if o.verbs&vAny != 0 && !strings.Contains(text, o.name) {
				t.Errorf("%s: nothing about --%s", shell, o.name)
			}
		})
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: only looked at", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}

func TestFishCompletion(t *testing.T) {
	if _, err := exec.LookPath("fish"); err != nil {
		t.Skip("no fish")
	}
	for line, want := range map[string]string{
		"lockrun unl": "unlock", "lockrun --ti": "--timeout", "lockrun unlock k --to": "--token", "lockrun --on-lost ": "continue",
		"lockrun completion z": "zsh", "lockrun --key k -- ech": "echo", "lockrun --key k -- ls --nosuchopt": "",
	} {
		cmd := exec.Command("fish", "--no-config", "-c", fishCompletion()+"\ncomplete -C '"+line+"'")
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if found := slices.Contains(strings.Fields(string(out)), want); err != nil || want != "" && !found || strings.Contains(string(out), "fish:") {
			t.Errorf("%q: %v\n%s", line, err, out)
		}
	}
}
