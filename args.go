package main

import (
	"fmt"
	"slices"
	"strings"
)

// words are a command line, cut up: which verb, which options, which arguments.
type words struct {
	verb    *command
	flags   []string // canonical: --name=value, --name for a switch
	args    []string // what is not an option, never parsed
	spelled bool     // the verb was written, not implied
	dashes  bool     // "--" stands before the last of args
}

// cut cuts up a command line without the program's name. Everything from the first "--" on is left alone before anybody
// looks at the rest, because a flag library takes a COMMAND that is called help or status for its own. Without a verb
// as the first word the verb is run, and the first word that is not an option begins COMMAND.
func cut(argv []string) (words, error) {
	w := words{verb: findCommand("run")}
	head, tail := argv, []string(nil)
	if i := slices.Index(argv, "--"); i >= 0 {
		head, tail, w.dashes = argv[:i], argv[i+1:], true
	}
	if len(head) > 0 {
		if c := findCommand(alias(head[0])); c != nil {
			w.verb, w.spelled, head = c, true, head[1:]
		}
	}
	rest, err := w.scan(head)
	if err != nil {
		return w, err
	}
	if len(rest) > 0 && !w.spelled {
		if c := findCommand(rest[0]); c != nil {
			return w.later(c, rest, tail)
		}
	}
	if len(rest) > 0 && !w.spelled && !w.dashes {
		run := *w.verb
		run.guessed = rest[0]
		w.verb = &run
	}
	if len(rest) > 0 && w.verb.is(vRun) {
		tail = restore(w.dashes, tail) // COMMAND began before it, so that it is one of COMMAND's words
	}
	w.args = append(rest, tail...)
	return w, nil
}

// alias gives the verb that an option of many programs stands for.
func alias(word string) string {
	switch word {
	case "--version", "-version", "-V":
		return "version"
	case "--help", "-help", "-h":
		return "help"
	}
	return word
}

// later settles what a verb's name means that comes after options and without "--" before it. With --key it might as
// well be COMMAND, and a guess could run the wrong thing.
func (w words) later(c *command, rest, tail []string) (words, error) {
	if _, given := w.value("key"); given {
		return w, fmt.Errorf("%q is a verb of lockrun as well as a COMMAND; write -- before it to run it, or the verb first: lockrun %[1]s", rest[0])
	}
	return cut(append(append([]string{c.name}, append(w.flags, rest[1:]...)...), restore(w.dashes, tail)...))
}

func restore(dashes bool, tail []string) []string {
	if !dashes {
		return nil
	}
	return append([]string{"--"}, tail...)
}

// scan takes the options out of head, in the form --name=value that the flag library cannot misread, and returns the
// other words. For run it stops at the first of these: what follows belongs to COMMAND.
func (w *words) scan(head []string) (rest []string, err error) {
	for len(head) > 0 {
		word := head[0]
		if len(word) < 2 || word[0] != '-' {
			if w.verb.is(vRun) {
				return append(rest, head...), nil
			}
			rest, head = append(rest, word), head[1:]
			continue
		}
		n, err := w.option(head)
		if err != nil {
			return nil, err
		}
		head = head[n:]
	}
	return rest, nil
}

// option takes the option that head begins with, and tells how many words it was.
func (w *words) option(head []string) (n int, err error) {
	name, value, assigned := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(head[0], "-"), "-"), "=")
	o := findOption(w.verb.bit, name)
	short, _, _ := strings.Cut(head[0], "=") // never the value: it may be a secret
	switch {
	case o == nil:
		return 0, fmt.Errorf("%s is not an option of lockrun %s; see lockrun help %[2]s", short, w.verb.name)
	case assigned:
		w.flags = append(w.flags, "--"+o.name+"="+value)
		return 1, nil
	case o.kind == kindSwitch:
		w.flags = append(w.flags, "--"+o.name+"=true")
		return 1, nil
	case len(head) < 2:
		return 0, fmt.Errorf("%s needs a value: %s %s", short, short, o.arg)
	}
	w.flags = append(w.flags, "--"+o.name+"="+head[1])
	return 2, nil
}

// value is what the option with this name was given last.
func (w *words) value(name string) (last string, given bool) {
	for _, f := range w.flags {
		if v, ok := strings.CutPrefix(f, "--"+name+"="); ok {
			last, given = v, true
		}
	}
	return last, given
}

// gives tells whether the option occurs.
func (w *words) gives(o *option) bool {
	return o.name != "" && slices.ContainsFunc(w.flags, func(f string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		return name == o.name
	})
}
