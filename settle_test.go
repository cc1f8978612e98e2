package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// file writes a configuration file and gives its path.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settled makes the configuration of a command line, one word a space.
func settled(t testing.TB, line string, env ...string) (*Config, []problem) {
	t.Helper()
	w, err := cut(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	flags, err := parseFlags(w)
	if err != nil {
		t.Fatal(err)
	}
	return settle(w.verb, flags, w.args, env)
}

// good is settled without any problem.
func good(t testing.TB, line string, env ...string) *Config {
	t.Helper()
	cfg, problems := settled(t, line, env...)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", line, problems)
	}
	return cfg
}

func TestDefaults(t *testing.T) {
	c := good(t, "--key k -- true", "HOSTNAME=web-1")
	want := &Config{Verb: "run", Key: "k", Command: []string{"true"}, TTL: time.Minute, Heartbeat: 20 * time.Second, Grace: 10 * time.Second,
		Holder: "web-1", Slots: 1, Descendants: "leave", OnLost: "kill", OnUnavail: "fail", BackendTimeout: 5 * time.Second, HookTimeout: 10 * time.Second, LogFormat: "text",
		Backends: []Store{{}}, Interval: time.Second, HistoryKeep: 1000, HistoryAge: 90 * 24 * time.Hour, DoneAge: 400 * 24 * time.Hour, historyDays: 90, doneDays: 400}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if c := good(t, "--key k --ttl 900ms -- true"); c.Grace != 150*time.Millisecond || c.Heartbeat != 300*time.Millisecond {
		t.Errorf("a short lease gets grace %v, heartbeat %v", c.Grace, c.Heartbeat)
	}
	if host, err := os.Hostname(); err == nil && good(t, "--key k -- true").Holder != host {
		t.Errorf("without $HOSTNAME the holder is %q", good(t, "--key k -- true").Holder)
	}
}

func TestEveryOptionGoesByFlagVariableAndFile(t *testing.T) {
	values := map[string]string{
		"key": "k2", "backend": "sqlite:///x/y.db", "record": "sqlite:///x/z.db", "fallback": "sqlite:///x/f.db", "ttl": "5m", "heartbeat": "7s", "wait": "forever", "hold-at-least": "3s", "timeout": "1h", "grace": "2s",
		"holder": "me", "schedule": "@daily", "run-id": "r", "slots": "3", "descendants": "wait", "on-lost": "continue", "on-unavailable": "skip",
		"backend-timeout": "9s", "exit-code": "skipped=3", "result-file": "r.json", "json": "true", "limit": "7", "quiet": "true", "verbose": "true",
		"log-format": "json", "metrics-file": "m.prom", "pushgateway": "http://h:9091", "hook": "lost=true", "ping": "https://h/uuid", "hook-timeout": "3s", "listen": ":9469", "history_keep": "5", "history_days": "6", "done_days": "8", "token": "42",
	}
	for i := range options {
		o := &options[i]
		text, known := values[o.id()]
		if !known {
			if o.toml != "" {
				t.Errorf("%s is not tested", o.id())
			}
			continue
		}
		verb := "run --key k "
		tail := " -- true"
		switch {
		case o.verbs&vRun != 0:
		case o.verbs&vHistory != 0:
			verb, tail = "history ", ""
		case o.verbs&vMetrics != 0:
			verb, tail = "metrics ", ""
		case o.verbs&vRelease != 0:
			verb, tail = "release --key k ", ""
		}
		if o.id() == "fallback" {
			verb += "-b sqlite:///x/main.db --on-unavailable fallback "
		}
		base := good(t, strings.Replace(verb, "release --key k", "release --key k --token 1", 1)+tail)
		if o.id() == "key" {
			verb = "run "
		}
		check := func(how string, c *Config) {
			t.Helper()
			got, was := reflect.ValueOf(o.at(c)).Elem().Interface(), reflect.ValueOf(o.at(base)).Elem().Interface()
			if reflect.DeepEqual(got, was) {
				t.Errorf("%s by %s changes nothing: %v", o.id(), how, got)
			}
		}
		if o.name != "" {
			check("flag", good(t, verb+"--"+o.name+"="+text+tail))
		}
		if o.env {
			check("variable", good(t, verb+tail, o.variable()+"="+text))
		}
		if o.toml != "" {
			check("file", good(t, verb+tail, "LOCKRUN_CONFIG="+file(t, "c.toml", tomlOf(o, text))))
		}
	}
}

// tomlOf writes an option as a configuration file does.
func tomlOf(o *option, text string) string {
	switch o.kind {
	case kindSwitch, kindCount:
		return o.toml + " = " + text
	case kindPairs:
		return o.toml + " = { " + strings.Replace(text, "=", " = ", 1) + " }"
	case kindHooks:
		return o.toml + " = { " + strings.Replace(text, "=", " = '", 1) + "' }"
	}
	return o.toml + " = \"" + text + "\""
}

func TestPrecedence(t *testing.T) {
	home := t.TempDir()
	write := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old := systemConfig
	defer func() { systemConfig = old }()
	systemConfig = write(filepath.Join(home, "etc.toml"), "holder = 'system'\nttl = '61s'\nslots = 2\n[jobs.k]\nslots = 3\nwait = '9s'\n")
	write(filepath.Join(home, ".config/lockrun/config.toml"), "holder = 'user'\nttl = '62s'\n[jobs.k]\nholder = 'user job'\n")
	given := write(filepath.Join(home, "given.toml"), "holder = 'given'\n")
	env := []string{"HOME=" + home}
	if c := good(t, "--key k -- x", env...); c.Holder != "user job" || c.TTL != 62*time.Second || c.Slots != 3 || c.Wait != 9*time.Second {
		t.Errorf("user before system, job before file: %q %v %d %v", c.Holder, c.TTL, c.Slots, c.Wait)
	}
	if c := good(t, "--key other -- x", env...); c.Holder != "user" || c.Slots != 2 || c.Wait != 0 {
		t.Errorf("another key has no job: %q %d %v", c.Holder, c.Slots, c.Wait)
	}
	if c := good(t, "--key k --config "+given+" -- x", env...); c.Holder != "given" || c.TTL != 62*time.Second {
		t.Errorf("--config before user: %q %v", c.Holder, c.TTL)
	}
	env = append(env, "LOCKRUN_HOLDER=env", "LOCKRUN_CONFIG="+given)
	if c := good(t, "--key k -- x", env...); c.Holder != "env" {
		t.Errorf("variable before files: %q", c.Holder)
	}
	if c := good(t, "--key k --holder flag -- x", env...); c.Holder != "flag" {
		t.Errorf("flag before variable: %q", c.Holder)
	}
	xdg := t.TempDir()
	write(filepath.Join(xdg, "lockrun/config.toml"), "holder = 'xdg'")
	if c := good(t, "--key k -- x", "HOME="+home, "XDG_CONFIG_HOME="+xdg); c.Holder != "xdg" {
		t.Errorf("XDG_CONFIG_HOME before ~/.config: %q", c.Holder)
	}
	// The tables of the one key that a verb is about apply to it, so that it asks where the job runs.
	if c := good(t, "unlock k --force", "HOME="+home); c.Holder != "user job" {
		t.Errorf("unlock k takes the job's settings: %q", c.Holder)
	}
}

func TestExitCodesMerge(t *testing.T) {
	conf := file(t, "c.toml", "exit_code = { skipped = 1, done = 2, lost = 3 }\n[jobs.k]\nexit_code = { done = 4 }")
	c := good(t, "--key k --exit-code timeout=6 --exit-code skipped=5 --config "+conf+" -- x", "LOCKRUN_EXIT_CODE=lost=7\nskipped=8\n")
	if want := map[string]int{"skipped": 5, "done": 4, "lost": 7, "timeout": 6}; !maps.Equal(c.ExitCodes, want) {
		t.Errorf("got %v, want %v", c.ExitCodes, want)
	}
}

func TestOuterRunIsNotInherited(t *testing.T) {
	outer := []string{"LOCKRUN_OWNER=0123456789abcdef0123456789abcdef", "LOCKRUN_KEY=outer", "LOCKRUN_RUN_ID=r", "LOCKRUN_TOKEN=7", "LOCKRUN_TTL=5m"}
	_, problems := settled(t, "-- x", outer...)
	if len(problems) != 1 || problems[0].code != codeUsage || !strings.Contains(problems[0].text, "LOCKRUN_KEY is the outer lockrun's") {
		t.Errorf("got %v", problems)
	}
	if c := good(t, "--key inner -- x", outer...); c.RunID != "" || c.Key != "inner" || c.TTL != 5*time.Minute {
		t.Errorf("got key %q, run id %q, ttl %v", c.Key, c.RunID, c.TTL)
	}
	if _, problems := settled(t, "release --key k", outer...); len(problems) != 1 || !strings.Contains(problems[0].text, "no token") {
		t.Errorf("got %v", problems)
	}
	if c := good(t, "-- x", outer[1:]...); c.Key != "outer" || c.RunID != "r" {
		t.Errorf("without an owner they are options: key %q, run id %q", c.Key, c.RunID)
	}
}

// Every problem is found at once; each says what, where, why, and what to do.
func TestProblems(t *testing.T) {
	conf := file(t, "c.toml", "ttl = 'x'\n[backends.a]\nurl = 'sqlite:///a'\n[backends.b]\nurl = 'sqlite:///b'\n")
	short := file(t, "s.toml", "ttl = '10s'\nheartbeat = '6s'\n")
	for _, c := range []struct {
		line string
		env  string
		code int
		want []string
	}{
		{"list", "", codeUsage, []string{`"list" is no verb of this version of lockrun (run, status, history,`}},
		{"metrics --listen :99999", "", codeUsage, []string{"--listen \":99999\" is refused: it has no port from 0 to 65535"}},
		{"metrics --listen 9", "", codeUsage, []string{"--listen \"9\" is refused: it is not an address to listen on"}},
		{"./list", "", codeUsage, []string{"there is no key; name the lease with --key KEY"}},
		{"run list", "", codeUsage, []string{"there is no key; name the lease with --key KEY"}},
		{"-- x", "", codeUsage, []string{"there is no key; name the lease with --key KEY"}},
		{"--key k", "", codeUsage, []string{"there is no COMMAND; write it last"}},
		{"--ttl 0 --slots 0 --wait x", "", codeUsage, []string{"there is no COMMAND", "there is no key", `--ttl "0" must be more than zero`, `--slots "0" is not a whole number from 1`, `--wait "x" is not a duration`}},
		{"--key k -- x", "LOCKRUN_TTL=60", codeUsage, []string{`LOCKRUN_TTL "60" has no unit; write 60s`}},
		{"--key k --config " + conf + " -- x", "", codeConfig, []string{conf + `:1: ttl "x" is not a duration`}},
		{"--key k --ttl 5s --backend c --config " + conf + " -- x", "", codeUsage, []string{`--backend "c" is neither a URL nor a [backends.NAME] of a configuration file; configured are a, b`}},
		{"--key k --ttl 50ms -- x", "", codeUsage, []string{"--ttl 50ms is shorter than 100ms"}},
		{"--key k --heartbeat 40s -- x", "", codeUsage, []string{"--heartbeat 40s is more than half of the default ttl of 1m, so one renewal that fails would lose the lease; at most 30s"}},
		{"--key k --config " + short + " -- x", "", codeConfig, []string{short + ":2: heartbeat 6s is more than half of " + short + ":1: ttl 10s"}},
		{"--key k --config " + short + " --ttl 8s -- x", "", codeUsage, []string{"more than half of --ttl 8s"}},
		{"--key k --ttl 30s --grace 20s -- x", "", codeUsage, []string{"--grace 20s and the default heartbeat of 10s together are not under --ttl 30s"}},
		{"--key k --schedule @daily --run-id r -- x", "", codeUsage, []string{"--schedule and --run-id: both name the run; leave one of them out"}},
		{"--key k --schedule 99_*_*_*_* -- x", "", codeUsage, []string{"--schedule \"99_*_*_*_*\" is no cron expression"}},
		{"--key k -q -v -- x", "", codeUsage, []string{"--quiet and --verbose: they contradict each other"}},
		{"--key k --exit-code x=1 -- x", "", codeUsage, []string{`--exit-code "x=1" names no exit code; the names are cannot-execute, config,`}},
		{"--key k --exit-code lost=256 -- x", "", codeUsage, []string{"has no code from 0 to 255"}},
		{"--key k --exit-code lost=+1 -- x", "", codeUsage, []string{"has no code from 0 to 255"}},
		{"--key k -- x", "LOCKRUN_PING=hunter2", codeUsage, []string{"LOCKRUN_PING is refused: it is no URL that begins with http:// or https:// and a host"}},
		{"--key k --pushgateway ftp://h/ -- x", "", codeUsage, []string{"--pushgateway is refused: it is no URL"}},
		{"--key k --ping http://h/%zz -- x", "", codeUsage, []string{"--ping is refused: it is no URL; encode what has a meaning there"}},
		{"--key k --hook sneezed=x -- x", "", codeUsage, []string{`--hook names the event "sneezed", which there is not; the events are started,`}},
		{"--key k --hook lost -- x", "", codeUsage, []string{"--hook is not EVENT=COMMAND"}},
		{"--key k --hook lost= -- x", "", codeUsage, []string{"--hook has no command for the event lost"}},
		{"--key k --hook-timeout 0 -- x", "", codeUsage, []string{"--hook-timeout"}},
		{"--key k --backend sqlite:///a --backend sqlite:///b --backend sqlite:///x/../a -- x", "", codeUsage, []string{"--backend names sqlite:///x/../a twice"}},
		{"--key k -b redis://h/0 -b rediss://u:p@H:6379 -- x", "", codeUsage, []string{"twice, and a run cannot hold"}},
		{"--key k --on-unavailable fallback -- x", "", codeUsage, []string{"the fallback and the backend are the same store (the embedded store)"}},
		{"--key k -b sqlite:///b -b sqlite:///a --on-unavailable fallback --fallback sqlite:///a -- x", "", codeUsage, []string{"are the same store (sqlite:///a)"}},
		{"--key k --fallback sqlite:///a -- x", "", codeUsage, []string{"--fallback has no use without --on-unavailable fallback"}},
		{"--key k --record nosuch -- x", "", codeUsage, []string{`"nosuch" is neither a URL nor a [backends.NAME]`}},
		{"--key k --ttl auto --heartbeat 20s -- x", "", codeUsage, []string{"more than half of the 30s that --ttl auto may come to; at most 15s"}},
		{"--key k --ttl auto --grace 25s -- x", "", codeUsage, []string{"the grace must be under 20s"}},
		{"renew --key k --token 1 --ttl auto", "", codeUsage, []string{"auto is for a lease that is asked for"}},
		{"--key a --key b -- x", "", codeUsage, []string{"--key is given 2 times"}},
		{"unlock k", "", codeUsage, []string{"give its --token (lockrun status tells it), or --force"}},
		{"unlock k --force --token 3", "", codeUsage, []string{"--force breaks whichever lease is there and --token only that one"}},
		{"unlock k l --force", "", codeUsage, []string{`lockrun unlock does not take the argument "l"`}},
		{"acquire k", "", codeUsage, []string{`lockrun acquire does not take the argument "k"`, "there is no key; name the lease with --key KEY; here it is no argument"}},
		{"acquire --key k --heartbeat 1s", "", codeUsage, []string{"--heartbeat has no use without --while-pid"}},
		{"release --key k --token abc", "", codeUsage, []string{`--token "abc" is not a whole number from 1`}},
		{"release --key k", "LOCKRUN_TOKEN=abc", codeUsage, []string{`LOCKRUN_TOKEN "abc" is not a whole number from 1`}},
		{"unlock k --token 99999999999999999999", "", codeUsage, []string{`--token "99999999999999999999" is not a whole number from 1`}},
		{"acquire --key k -b zookeeper://h/x --while-pid 0", "", codeUsage, []string{`--while-pid "0" is not a whole number from 1`}},
		{"acquire --key k --heartbeat 1s --while-pid x", "", codeUsage, []string{`--while-pid "x" is not a whole number from 1`}},
		{"history -n 0", "", codeUsage, []string{`-n, --limit "0" is not a whole number from 1`}},
		{"history", "LOCKRUN_LIMIT=0", codeUsage, []string{`LOCKRUN_LIMIT "0" is not a whole number from 1`}},
		{"renew --key k", "", codeUsage, []string{"there is no token; give the --token that lockrun acquire printed"}},
		{"renew --key k --token 1 --ttl 1ms", "", codeUsage, []string{"shorter than 100ms"}},
		{"--key k --config /nonexistent/c.toml -- x", "", codeConfig, []string{"config file /nonexistent/c.toml cannot be read: no such file or directory; correct the path"}},
		{"--key k --config= -- x", "", codeUsage, []string{`--config "" is empty; give a value or leave it out`}},
		{"--key k --config / -- x", "", codeConfig, []string{"config file / cannot be read: is a directory"}},
	} {
		cfg, problems := settled(t, c.line, c.env)
		if len(problems) != len(c.want) {
			t.Errorf("%s: %v", c.line, problems)
			continue
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(problems, func(p problem) bool { return strings.Contains(p.text, want) && p.code == c.code }) {
				t.Errorf("%s: %v\nwant %d %s", c.line, problems, c.code, want)
			}
		}
		for _, p := range problems {
			if strings.HasSuffix(p.text, ".") || strings.Contains(p.text, "\n") {
				t.Errorf("%s: not one line without a full stop: %q", c.line, p.text)
			}
		}
		if cfg == nil {
			t.Errorf("%s: no configuration beside the problems", c.line)
		}
	}
}

func TestAHigherLevelDecidesBetweenRivals(t *testing.T) {
	conf := file(t, "c.toml", "schedule = '@daily'\nquiet = true")
	c := good(t, "--key k --run-id r -v --config "+conf+" -- x")
	if c.Schedule != "" || c.RunID != "r" || c.Quiet || !c.Verbose {
		t.Errorf("got %q %q %v %v", c.Schedule, c.RunID, c.Quiet, c.Verbose)
	}
	c = good(t, "--key k --schedule @hourly -q -- x", "LOCKRUN_RUN_ID=r", "LOCKRUN_VERBOSE=1")
	if c.Schedule != "@hourly" || c.RunID != "" || !c.Quiet || c.Verbose {
		t.Errorf("got %q %q %v %v", c.Schedule, c.RunID, c.Quiet, c.Verbose)
	}
}

func TestNamedBackendAndItsPassword(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"c.toml": "backend = 'prod'\n[backends.prod]\nurl = 'sqlite:///x'\npassword_file = 'pass'\n[backends.dev]\nurl = 'sqlite:///y'\npassword_file = 'none'\n[backends.nil]\nurl = 'sqlite:///z'\npassword_file = 'empty'\n",
		"pass":   " s#e@c/r%et \n", "empty": "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := "LOCKRUN_CONFIG=" + filepath.Join(dir, "c.toml")
	if c := good(t, "--key k -- x", conf); !slices.Equal(c.Backends, []Store{{"sqlite:///x", "prod", " s#e@c/r%et ", filepath.Join(dir, "c.toml") + ":3"}}) {
		t.Errorf("got %q", c.Backends)
	}
	for name, why := range map[string]string{"dev": "none cannot be read: no such file or directory; correct the path", "nil": "empty is empty"} {
		_, problems := settled(t, "--key k -b "+name+" -- x", conf)
		if len(problems) != 1 || problems[0].code != codeConfig || !strings.Contains(problems[0].text, why) {
			t.Errorf("%s: %v", name, problems)
		}
	}
	if c := good(t, "--key k -b redis://u:pw@h/ -- x"); len(c.Warnings) != 1 || strings.Contains(c.Warnings[0], "pw@") {
		t.Errorf("a password on the command line: %q", c.Warnings)
	}
	if c := good(t, "--key k -- x", "LOCKRUN_BACKEND=redis://u:pw@h/"); len(c.Warnings) != 0 {
		t.Errorf("a password in a variable: %q", c.Warnings)
	}
}

func TestHelpNeedsNothingElse(t *testing.T) {
	if got := invoke(t, untouched(t), []string{"LOCKRUN_CONFIG=/nonexistent"}, "unlock", "--help"); got.code != 0 || got.err != "" || !strings.Contains(got.out, "--token N") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, untouched(t), []string{"LOCKRUN_CONFIG=/nonexistent", "LOCKRUN_QUIET=maybe"}, "version"); got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
}
