package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockrun/lockrun/backends"
)

// environ holds the variables that lockrun itself looks at.
type environ map[string]string

func newEnviron(env []string) environ {
	e := environ{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "LOCKRUN_"):
		case name == "HOSTNAME", name == "HOME", name == "XDG_CONFIG_HOME", name == "USER", name == "SUDO_USER", name == "TZ":
		default:
			continue
		}
		if _, twice := e[name]; !twice { // getenv(3) gives the first
			e[name] = value
		}
	}
	return e
}

// settler settles each option of one invocation: flag, then variable, then configuration files in their order, each
// with the job's table before the file's own settings.
type settler struct {
	verb     *command
	flags    map[string][]string // by option.id
	env      environ
	files    []*configFile
	job      string             // the key whose tables apply
	chosen   map[string]setting // by option.id: what was settled on; absent where the default holds
	problems []problem
	cfg      *Config
}

func newSettler(verb *command, flags map[string][]string, env []string) *settler {
	return &settler{verb: verb, flags: flags, env: newEnviron(env), chosen: map[string]setting{}, cfg: &Config{
		Verb: verb.name, TTL: defaultTTL, Slots: 1, Descendants: "leave", OnLost: "kill", OnUnavail: "fail",
		BackendTimeout: defaultBackendTimeout, HookTimeout: defaultHookTimeout, LogFormat: "text", HistoryKeep: 1000, historyDays: 90, doneDays: 400,
	}}
}

// settle makes the configuration of an invocation from everything that may say something about it. The configuration is
// never nil; it is good for use only where there is no problem. Nothing is touched, but files are read.
func settle(verb *command, flags map[string][]string, args []string, env []string) (*Config, []problem) {
	s := newSettler(verb, flags, env)
	s.arguments(args)
	if verb.is(vStore) {
		s.readFiles()
	}
	s.jobKey()
	for i := range options {
		if o := &options[i]; verb.is(o.verbs) {
			s.settleOption(o)
		}
	}
	s.settleStores()
	s.validate()
	return s.cfg, s.problems
}

// understood is what can be known of an invocation whose command line cannot be read to its end: key, exit codes and result
// file. What else is wrong is not told.
func understood(w words, env []string) *Config {
	flags := map[string][]string{}
	for _, f := range w.flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		flags[name] = append(flags[name], value)
	}
	s := newSettler(w.verb, flags, env)
	if w.verb.is(vStore) {
		s.readFiles()
	}
	s.jobKey()
	for _, name := range []string{"key", "exit-code", "result-file"} {
		if o := findOption(w.verb.bit, name); o != nil {
			s.settleOption(o)
		}
	}
	return s.cfg
}

func (s *settler) wrong(code int, format string, a ...any) {
	s.problems = append(s.problems, problem{code, fmt.Sprintf(format, a...)})
}

// arguments takes what is not an option.
func (s *settler) arguments(args []string) {
	if s.verb.is(vRun) {
		s.cfg.Command = args
		return
	}
	s.cfg.Keys = args
}

// readFiles reads the configuration files, the named one first.
func (s *settler) readFiles() {
	o := findOption(s.verb.bit, "config")
	if own := s.settings(o); len(own) > 0 {
		if o.put(s.cfg, own[0]) != nil {
			return // told when its turn comes
		}
		s.readFile(s.cfg.ConfigFile, false)
	}
	for _, path := range configPaths(s.env) {
		s.readFile(path, true)
	}
}

func (s *settler) readFile(path string, mayMiss bool) {
	f, problems := readConfig(path, mayMiss)
	s.problems = append(s.problems, problems...)
	if f != nil {
		s.files = append(s.files, f)
	}
}

// jobKey finds out which job's tables apply: those of --key, or of the one key that is named as an argument.
func (s *settler) jobKey() {
	if o := findOption(s.verb.bit, "key"); o != nil {
		if own := s.settings(o); len(own) > 0 {
			s.job = own[0].values[len(own[0].values)-1]
		}
	} else if len(s.cfg.Keys) == 1 {
		s.job = s.cfg.Keys[0]
	}
}

// settings are what the levels say about an option, highest first.
func (s *settler) settings(o *option) []setting {
	var out []setting
	if v := s.flags[o.id()]; len(v) > 0 {
		out = append(out, setting{values: v, from: o.flag(), level: fromFlag})
	}
	if v := s.env[o.variable()]; o.env && v != "" && s.verb.is(vStore) && !(o.outer && s.env["LOCKRUN_OWNER"] != "") {
		out = append(out, setting{values: o.fromVariable(v), from: o.variable(), level: fromEnv})
	}
	for _, f := range s.files {
		if set, ok := f.jobs[s.job][o.toml]; ok && s.job != "" {
			out = append(out, set)
		}
		if set, ok := f.top[o.toml]; ok && o.toml != "" {
			out = append(out, set)
		}
	}
	return out
}

// fromVariable cuts a variable's value: one value a line where the option is repeatable. Commas never split.
func (o *option) fromVariable(v string) []string {
	if o.kind != kindPairs && o.kind != kindHooks && o.kind != kindList {
		return []string{v}
	}
	return strings.FieldsFunc(v, func(r rune) bool { return r == '\n' })
}

// settleOption stores the highest setting of an option; pairs are merged, name by name.
func (s *settler) settleOption(o *option) {
	found := s.settings(o)
	if len(found) == 0 {
		return
	}
	s.chosen[o.id()] = found[0]
	if o.once && found[0].level == fromFlag && len(found[0].values) > 1 {
		s.wrong(codeUsage, "%s is given %d times; give it once", o.flag(), len(found[0].values))
	}
	last := 0
	if o.kind == kindPairs || o.kind == kindHooks {
		last = len(found) - 1
	}
	for ; last >= 0; last-- {
		if p := o.put(s.cfg, found[last]); p != nil {
			s.problems = append(s.problems, *p)
		}
	}
}

// isNotDir tells a path that leads through a file: there is no configuration there, as with a folder that is missing.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// hostname is $HOSTNAME, which in a pod is the pod's name, or what the kernel says.
func (s *settler) hostname() string {
	name := s.env["HOSTNAME"]
	if name == "" {
		name, _ = os.Hostname()
	}
	if name == "" {
		name = "unknown"
	}
	name = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), backends.MaxHolder)], "")
}
