package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Events that hooks can be asked for.
const (
	eventStarted     = "started"     // COMMAND was started
	eventSucceeded   = "succeeded"   // COMMAND exited 0
	eventFailed      = "failed"      // COMMAND exited otherwise, or could not be executed
	eventSkipped     = "skipped"     // held by another, or paused
	eventDone        = "done"        // the run id had already succeeded
	eventUnavailable = "unavailable" // the backend could not answer, and no other did instead
	eventFallback    = "fallback"    // the fallback's lease was taken instead
	eventLost        = "lost"        // the lease was lost
	eventTimeout     = "timeout"     // --timeout ended COMMAND
)

var events = []string{eventStarted, eventSucceeded, eventFailed, eventSkipped, eventDone, eventUnavailable, eventFallback, eventLost, eventTimeout}

// putHooks adds hooks. Those that a higher level has for an event replace the lower's for it, all of them; a file may say
// that there are none, for an event or at all.
func (o *option) putHooks(c *Config, s setting) *problem {
	here := map[string][]string{}
	for _, v := range s.values {
		if event, none := strings.CutSuffix(v, "="); none && s.level == fromFile {
			here[event] = nil
			continue
		}
		if v == "" && s.level == fromFile {
			c.Hooks = nil
			continue
		}
		event, command, err := parseHook(v)
		if err != nil {
			p := s.problem(o, err.Error())
			return &p
		}
		here[event] = append(here[event], command)
	}
	if c.Hooks == nil {
		c.Hooks = map[string][]string{}
	}
	for event, commands := range here {
		c.Hooks[event] = commands
		if commands == nil {
			delete(c.Hooks, event)
		}
	}
	return nil
}

// parseHook reads EVENT=COMMAND. Errors show the event at most: a command may well hold a token.
func parseHook(s string) (event, command string, err error) {
	event, command, found := strings.Cut(s, "=")
	if !found {
		return "", "", errors.New("is not EVENT=COMMAND; write it like failed='mail -s \"$LOCKRUN_KEY failed\" ops'")
	}
	switch err := checkEvent(event); {
	case err != nil:
		return "", "", err
	case strings.TrimSpace(command) == "":
		return "", "", fmt.Errorf("has no command for the event %s after the equals sign", event)
	case strings.IndexByte(command, 0) >= 0:
		return "", "", fmt.Errorf("has a NUL byte in the command for %s; take it out", event)
	}
	return event, command, nil
}

func checkEvent(event string) error {
	if slices.Contains(events, event) {
		return nil
	}
	return fmt.Errorf("names the event %s, which there is not; the events are %s", quoted(event), strings.Join(events, ", "))
}

// hooksFromTOML reads a table of commands, or of lists of them. Nothing for an event is EVENT=, and instead of the table "".
func hooksFromTOML(md *toml.MetaData, p toml.Primitive) ([]string, error) {
	var table map[string]toml.Primitive
	if !decodeTable(md, p, &table) {
		var none string
		if md.PrimitiveDecode(p, &none) == nil && none == "" {
			return []string{""}, nil
		}
		return nil, errors.New(`is not a table of commands; write it like { failed = "mail -s failed ops", lost = ["...", "..."] }`)
	}
	var out []string
	for _, event := range sortedKeys(table) {
		commands, err := commandsFromTOML(md, table[event])
		if len(commands) == 0 || len(commands) == 1 && commands[0] == "" {
			if commands = nil; err == nil {
				err = checkEvent(event)
			}
			out = append(out, event+"=")
		}
		for _, command := range commands {
			if _, _, wrong := parseHook(event + "=" + command); err == nil {
				err = wrong
			}
			out = append(out, event+"="+command)
		}
		if err != nil {
			return nil, &placedError{table[event], err}
		}
	}
	return out, nil
}

// commandsFromTOML reads a string or an array of them.
func commandsFromTOML(md *toml.MetaData, p toml.Primitive) ([]string, error) {
	var one string
	if md.PrimitiveDecode(p, &one) == nil {
		return []string{one}, nil
	}
	var many []string
	if md.PrimitiveDecode(p, &many) != nil {
		return nil, errors.New(`has something else for an event than a command or a list of commands; put them in quotes`)
	}
	return many, nil
}

// checkHTTP tells whether text is a URL that can be asked. It is not shown: the path of a ping is its password.
func checkHTTP(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("it is no URL; encode what has a meaning there")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("it is no URL that begins with http:// or https:// and a host")
	}
	return nil
}
