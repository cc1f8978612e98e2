package main

import (
	"fmt"
	"strings"
)

// doHelp tells what lockrun, or one of its verbs, does.
func doHelp(c *call) int {
	if len(c.cfg.Keys) == 0 {
		return printed(c.ui, c.io.Out, generalHelp())
	}
	about := findCommand(c.cfg.Keys[0])
	if about == nil && c.cfg.Keys[0] == "man" {
		return printed(c.ui, c.io.Out, manPage())
	}
	if about == nil {
		c.ui.err("%s is not a verb of lockrun; see lockrun help", quoted(c.cfg.Keys[0]))
		return codeUsage
	}
	return printed(c.ui, c.io.Out, verbHelp(about))
}

// generalHelp is what a person sees who asks for help with nothing in particular.
func generalHelp() string {
	var b strings.Builder
	b.WriteString(`lockrun runs a command under a lease, so that of many hosts one at a time runs it.

    lockrun --key KEY [options] -- COMMAND [ARG...]

Verbs:
`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "    %-12s %s\n", c.name, c.help)
	}
	b.WriteString("\nOptions of a run:\n")
	writeOptions(&b, vRun)
	b.WriteString("\n")
	writeExitCodes(&b)
	b.WriteString(helpFoot)
	return b.String()
}

const helpFoot = `
An option is also a variable (LOCKRUN_TTL=45m) and a key of a configuration file (ttl = "45m"): flag before variable
before --config FILE, $XDG_CONFIG_HOME/lockrun/config.toml, /etc/lockrun/config.toml.
Durations: 90s, 1h30m, 1d12h. "lockrun help VERB" tells the options of the other verbs.
`

// verbHelp is the help of one verb.
func verbHelp(c *command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "lockrun %s: %s\n\n    %s\n", c.name, c.help, c.usage("[options]"))
	if c.long != "" {
		fmt.Fprintf(&b, "\n%s\n", c.long)
	}
	b.WriteString("\nOptions:\n")
	writeOptions(&b, c.bit)
	if c.is(vRun) {
		b.WriteString("\n")
		writeExitCodes(&b)
	}
	return b.String()
}

// helpColumn is where the explanations begin.
const helpColumn = 34

func writeOptions(b *strings.Builder, v verb) {
	for i := range options {
		o := &options[i]
		if o.verbs&v == 0 || o.name == "" {
			continue
		}
		left := "    --" + o.name
		if o.short != "" {
			left = "-" + o.short + ", --" + o.name
			left = "    " + left
		}
		if o.arg != "" {
			left += " " + o.arg
		}
		if len(left) > helpColumn-2 {
			fmt.Fprintf(b, "%s\n%*s", left, helpColumn, "")
		} else {
			fmt.Fprintf(b, "%-*s", helpColumn, left)
		}
		b.WriteString(o.help)
		if def := o.defaultIn(v); def != "" {
			fmt.Fprintf(b, " (%s)", def)
		}
		b.WriteByte('\n')
	}
}

// defaultIn is the default of the option as help tells it of a verb: doctor takes the options of a run and needs none, and
// a renewal repeats what was granted.
func (o *option) defaultIn(v verb) string {
	switch {
	case v == vDoctor && o.name == "key":
		return "none: no job is examined"
	case v == vRenew && o.name == "ttl":
		return "what the lease was granted for"
	}
	return o.def
}

// writeExitCodes tells lockrun's own codes with the names that --exit-code takes.
func writeExitCodes(b *strings.Builder) {
	b.WriteString("Exit codes: COMMAND's own, 128+N where signal N ended it, or\n")
	for _, e := range exitHelp {
		fmt.Fprintf(b, "    %-15s %3d  %s\n", e.name, exitNames[e.name], e.help)
	}
}

// exitHelp explains exitNames, in the order of the codes.
var exitHelp = [...]struct{ name, help string }{
	{"usage", "bad flag, key, value or combination"},
	{"unavailable", "the backend could not answer for certain; COMMAND was not started"},
	{"internal", "a bug in lockrun"},
	{"skipped", "the lease is held by another, or the key is paused; COMMAND was not started"},
	{"done", "this tick or run id already ran with success"},
	{"config", "configuration file unreadable or wrong"},
	{"lost", "the lease was lost; COMMAND was stopped"},
	{"timeout", "--timeout ended COMMAND"},
	{"cannot-execute", "COMMAND cannot be executed"},
	{"not-found", "COMMAND is not there"},
}
