package main

import (
	"fmt"
	"strings"
)

// manPage is lockrun(1), made from the same tables as the help, so that neither can forget an option. "lockrun help man"
// prints it; packages install it. It names no date, because two builds of one commit have to be equal.
func manPage() string {
	var m roff
	m.line(`.TH LOCKRUN 1 "" "lockrun %s" "User Commands"`, version)
	m.section("NAME")
	m.text(`lockrun - run a command under a lease, so that of many hosts one at a time runs it`)
	m.section("SYNOPSIS")
	m.line(`.B lockrun`)
	m.line(`.BI \-\-key " KEY"`)
	m.line(`.RI [ options ]`)
	m.line(`.B \-\-`)
	m.line(`.IR COMMAND " [" ARG... ]`)
	for _, c := range commands()[1:] {
		m.line(".br")
		m.line(".B %s", escaped(c.usage("")))
	}
	m.section("DESCRIPTION")
	m.text(manAbout)
	m.section("OPTIONS OF A RUN")
	eachOption(vRun, func(o *option) { m.option(vRun, o) })
	m.verbs()
	m.section("EXIT STATUS")
	m.text("COMMAND's own, 128+N where signal N ended it, or one of lockrun's own, each of which --exit-code NAME=N changes:")
	for _, e := range exitHelp {
		m.item(fmt.Sprintf("%d (%s)", exitNames[e.name], e.name), e.help)
	}
	m.section("ENVIRONMENT")
	m.text("Each option is also a variable, but for --force, --print and --while-pid: LOCKRUN_TTL is --ttl. One that may be repeated has one value a line. COMMAND is given " +
		"LOCKRUN_KEY, LOCKRUN_TOKEN (the fencing token), LOCKRUN_OWNER, LOCKRUN_SLOT, LOCKRUN_RUN_ID and LOCKRUN_ATTEMPT.")
	m.section("FILES")
	m.item("/etc/lockrun/config.toml, $XDG_CONFIG_HOME/lockrun/config.toml", "configuration; --config FILE comes before both")
	m.item("/var/lib/lockrun/lockrun.db, $XDG_STATE_HOME/lockrun/lockrun.db", "the embedded store, root's and everybody else's")
	m.section("EXAMPLES")
	m.item("lockrun --key order-reconcile --ttl 45m --exit-code skipped=0 -- order-reconcile", "in the crontabs of two hosts: one of them runs it, and cron mails only failures")
	m.item("lockrun --key close-books --schedule '0 1 * * *' -- close-books", "at most one successful run a night, whoever comes first")
	m.item("lockrun history --since 1d --outcome failed,lost,crashed,timeout", "what went wrong since yesterday")
	m.section("SEE ALSO")
	m.text("flock(1), timeout(1), crontab(5)")
	return m.String()
}

const manAbout = `lockrun takes the lease of KEY from its backend, keeps it alive with heartbeats, runs COMMAND, forwards signals to it, and
gives the lease back when COMMAND and its processes have ended. Where the lease is held by another, COMMAND is not started.
Where it cannot be renewed, COMMAND is stopped before another may start it. Leases live in an embedded store (SQLite) unless
--backend names another.`

// verbs tells each verb but run, with the options that mean something else than they do for a run; the rest is only named.
func (m *roff) verbs() {
	m.section("OTHER VERBS")
	for _, c := range commands()[1:] {
		m.line(".SS %s", escaped(c.usage("")))
		m.text(c.help + ".")
		if c.long != "" {
			m.line(".PP")
			m.text(c.long)
		}
		var asAbove []string
		eachOption(c.bit, func(o *option) {
			if o.verbs&vRun != 0 && o.defaultIn(c.bit) == o.def {
				asAbove = append(asAbove, "--"+o.name)
			} else {
				m.option(c.bit, o)
			}
		})
		m.line(".PP")
		m.text("As for a run: " + strings.Join(asAbove, ", ") + ".")
	}
}

// roff is a manual page in the language of man(7).
type roff struct{ strings.Builder }

// line writes a line of the language itself.
func (m *roff) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *roff) section(name string) { m.line(".SH %s", name) }

// text writes words, none of which can be taken for a request.
func (m *roff) text(s string) {
	for l := range strings.Lines(s) {
		m.WriteString(escaped(strings.TrimSuffix(l, "\n")))
		m.WriteByte('\n')
	}
}

// item is a term and what it means.
func (m *roff) item(term, meaning string) {
	m.line(".TP\n.B %s", escaped(term))
	m.text(meaning)
}

// option tells one of a verb's, as the help does.
func (m *roff) option(v verb, o *option) {
	term := "--" + o.name
	if o.short != "" {
		term = "-" + o.short + ", " + term
	}
	if o.arg != "" {
		term += " " + o.arg
	}
	meaning := o.help
	if def := o.defaultIn(v); def != "" {
		meaning += " (" + def + ")"
	}
	m.item(term, meaning)
}

// escaped is text in which roff sees no request, no escape, and no typographic hyphen.
func escaped(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
