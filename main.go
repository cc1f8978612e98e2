// Lockrun runs a command under a lease, so that of many hosts, or of many crontab lines, one at a time runs it.
//
//	$ lockrun --key order-reconcile --ttl 45m -- ./reconcile
//	$ lockrun status
//	KEY              STATE  HOLDER  AGE    LEFT    ATTEMPT  TOKEN
//	order-reconcile  held   web-1   2m13s  44m12s  1        7
//	$ lockrun --key order-reconcile -- ./reconcile; echo $?
//	lockrun: skipped: "order-reconcile" is held by web-1 since 2026-11-30T01:00:00Z, until 2026-11-30T01:59:12Z
//	75
//
// The lease is renewed while the command runs. Where it cannot be renewed the command is stopped, in time, before
// another host may start it. The command's own exit code is passed on; lockrun's own codes, from 64 on, tell a skip (75)
// from a fault (69). Nothing is printed that cron would send by mail, unless something went wrong.
//
//	lockrun --key KEY [options] -- COMMAND [ARG...]
//	lockrun status | history | unlock | acquire | renew | release | init | doctor | pause | resume | metrics
//	lockrun help [VERB]
//
// Leases live in an embedded store (SQLite) unless --backend names another. Each option is also a variable
// (LOCKRUN_TTL) and a key of a configuration file. "lockrun help" tells all of them, README.md tells how they play
// together, and docs/design.md what is promised and what is not.
//
//go:debug updatemaxprocs=0
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lockrun/lockrun/internal/hooks"
	"github.com/lockrun/lockrun/internal/supervise"
)

func main() {
	supervise.GuardMain()
	std := IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ()}
	if len(os.Args) == 1 && os.Args[0] == hooks.MinderName {
		nameProcess(hooks.MinderName)
		os.Exit(hooks.MinderMain(supervise.Spread))
	}
	if isMinder(os.Args) {
		os.Exit(minderMain(std, openBackend))
	}
	os.Exit(dispatch(os.Args[1:], std, openBackend))
}

// dispatch carries out one command line, without the program's name, and returns the exit code.
func dispatch(argv []string, std IO, open opener) (code int) {
	var cfg *Config
	u := newUI(&Config{LogFormat: earlyFormat(argv, std.Env)}, std.Err)
	defer func() { u.flush() }()
	defer caught(func(err error) {
		u.err("%v", err)
		code = cfg.exit(codeInternal)
	})
	if len(argv) == 0 {
		return unreadable(u, words{verb: findCommand("run")}, std.Env, "there is nothing to do; write lockrun --key KEY -- COMMAND, or lockrun help")
	}
	w, err := cut(argv)
	if err != nil {
		return unreadable(u, w, std.Env, err.Error())
	}
	flags, err := parseFlags(w)
	if err != nil {
		return unreadable(u, w, std.Env, fmt.Sprintf("%v; see lockrun help %s", err, w.verb.name))
	}
	cfg, problems := settle(w.verb, flags, w.args, std.Env)
	u = newUI(cfg, std.Err)
	cfg.warn = func(text string) { u.warn("%s", text) }
	if cfg.help {
		return printed(u, std.Out, verbHelp(w.verb))
	}
	if len(problems) > 0 {
		code := cfg.exit(tellProblems(u, problems))
		notRun(u, cfg.ResultFile, cfg.Key, code, problems[0].text)
		return code
	}
	for _, text := range cfg.Warnings {
		u.warn("%s", text)
	}
	if !w.verb.is(vRun) {
		supervise.Spread()
	}
	return w.verb.do(&call{cfg: cfg, io: std, ui: u, open: open})
}

// earlyFormat is the form of messages as far as it can be known of a command line that may turn out to be none.
func earlyFormat(argv, env []string) string {
	format := newEnviron(env)["LOCKRUN_LOG_FORMAT"]
	for i, word := range argv {
		switch {
		case word == "--":
			return format
		case word == "--log-format" && i+1 < len(argv):
			format = argv[i+1]
		case strings.HasPrefix(word, "--log-format="):
			format = strings.TrimPrefix(word, "--log-format=")
		}
	}
	return format
}

// unreadable answers for a command line of which some option is not understood. What stands before that option counts, and
// so do variables and files: a word behind it may be COMMAND's.
func unreadable(u *ui, w words, env []string, why string) int {
	u.err("%s", why)
	cfg := understood(w, env)
	code := cfg.exit(codeUsage)
	notRun(u, cfg.ResultFile, cfg.Key, code, why)
	return code
}

// tellProblems says everything that is wrong, a line each, and gives the code: a wrong command line comes before a wrong
// configuration file, because it is what was typed last.
func tellProblems(u *ui, problems []problem) int {
	code := codeConfig
	for _, p := range problems {
		u.err("%s", p.text)
		if p.code == codeUsage {
			code = codeUsage
		}
	}
	return code
}

// parseFlags has the flag library read the options of a command line that has been cut up. It prints nothing, exits
// nowhere, and knows one verb only, so that no word of COMMAND can be taken for another.
func parseFlags(w words) (map[string][]string, error) {
	flags := map[string][]string{}
	var read bool
	app := &cli.App{
		Name: "lockrun", HideHelp: true, HideHelpCommand: true, HideVersion: true, Writer: io.Discard, ErrWriter: io.Discard,
		ExitErrHandler: func(*cli.Context, error) {}, // the library's own calls os.Exit, past the release
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return err },
		Commands: []*cli.Command{{
			Name: w.verb.name, HideHelp: true, HideHelpCommand: true, Flags: cliFlags(w, flags),
			OnUsageError: func(_ *cli.Context, err error, _ bool) error { return err },
			Action:       func(*cli.Context) error { read = true; return nil },
		}},
	}
	argv := append([]string{"lockrun", w.verb.name}, w.flags...)
	if err := app.Run(argv); err != nil {
		return nil, err
	}
	if !read {
		return nil, errors.New("the options cannot be read")
	}
	return flags, nil
}

// cliFlags makes flags from the table of options. Their values go into flags as they were written. Only those that occur
// are made: the library spends 1,700 allocations, and 0.15 ms of each start, on the two dozen that run has.
func cliFlags(w words, flags map[string][]string) []cli.Flag {
	var out []cli.Flag
	for i := range options {
		if o := &options[i]; o.verbs&w.verb.bit != 0 && w.gives(o) {
			out = append(out, &cli.GenericFlag{Name: o.name, Usage: o.help, Value: &collector{id: o.id(), into: flags}})
		}
	}
	return out
}

// collector keeps each value of a flag as text. The library's own types split lists at commas, and put variables in
// between without telling where a value came from.
type collector struct {
	id   string
	into map[string][]string
}

// Set implements cli.Generic.
func (c *collector) Set(v string) error {
	c.into[c.id] = append(c.into[c.id], v)
	return nil
}

// String implements cli.Generic.
func (c *collector) String() string { return "" }

// printed writes what was asked for to stdout, and gives the exit code: failing to print it is failing.
func printed(u *ui, out *os.File, text string) int {
	if _, err := out.WriteString(text); err != nil {
		u.err("cannot write to stdout: %v", pathCause(err))
		return codeNo
	}
	return codeOK
}

// version is set by the linker.
var version = "devel"

func doVersion(c *call) int {
	return printed(c.ui, c.io.Out, fmt.Sprintf("lockrun %s\n", version))
}

// doRun runs COMMAND under the lease.
func doRun(c *call) int { return run(c.cfg, c.io, c.ui, c.open) }
