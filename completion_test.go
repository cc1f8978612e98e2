package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bashWords cuts a line as readline does for a completion: also at = and the like, which become words of their own.
func bashWords(line string) (words []string) {
	for _, w := range strings.Split(line, " ") {
		if w == "" {
			words = append(words, "")
		}
		words = append(words, regexp.MustCompile("[=:@]+|[^=:@]+").FindAllString(w, -1)...)
	}
	return words
}

// completions are what bash offers for the last word of a line.
func completions(t *testing.T, line string) []string {
	t.Helper()
	script := bashCompletion() + `
COMP_LINE=$1
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_lockrun
printf '%s\n' "${COMPREPLY[@]}"
`
	cmd := exec.Command("bash", append([]string{"--norc", "-uc", script, "bash", line}, bashWords(line)...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", line, err, out)
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
		{"lockrun --key=k --t", []string{"--ttl", "--timeout"}, []string{"--token"}},
		{"lockrun --key=k -- ech", []string{"echo"}, nil},
		{"lockrun -b redis://u@h:6379 --key k --t", []string{"--ttl"}, nil},
		{"lockrun --backend=sqlite:///x ech", []string{"echo"}, nil},
		{"lockrun --on-lost=k", []string{"kill"}, []string{"continue"}},
		{"lockrun --key k --exit-code=sk", []string{"skipped="}, nil},
		{"lockrun --key a:b st", []string{"status"}, nil},
	} {
		got := completions(t, c.line)
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
			if short := map[string]string{"bash": "|-%s", "zsh": "-%s[", "fish": " -s %s "}[shell]; o.short != "" && (shell != "bash" || o.kind != kindSwitch) && !strings.Contains(text, fmt.Sprintf(short, o.short)) {
				t.Errorf("%s: nothing about -%s", shell, o.short)
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
