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

// putHooks adds hooks. Those that a higher level has for an event replace the lower's for it, all of them.
func (o *option) putHooks(c *Config, s setting) *problem {
	here := map[string][]string{}
	for _, v := range s.values {
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
	}
	return nil
}

// parseHook reads EVENT=COMMAND. Errors show the event at most: a command may well hold a token.
func parseHook(s string) (event, command string, err error) {
	event, command, found := strings.Cut(s, "=")
	switch {
	case !found:
		return "", "", errors.New("is not EVENT=COMMAND; write it like failed='mail -s \"$LOCKRUN_KEY failed\" ops'")
	case !slices.Contains(events, event):
		return "", "", fmt.Errorf("names the event %s, which there is not; the events are %s", quoted(event), strings.Join(events, ", "))
	case strings.TrimSpace(command) == "":
		return "", "", fmt.Errorf("has no command for the event %s after the equals sign", event)
	case strings.IndexByte(command, 0) >= 0:
		return "", "", fmt.Errorf("has a NUL byte in the command for %s; take it out", event)
	}
	return event, command, nil
}

// hooksFromTOML reads a table of commands, or of lists of them.
func hooksFromTOML(md *toml.MetaData, p toml.Primitive) ([]string, error) {
	wrong := errors.New(`is not a table of commands; write it like { failed = "mail -s failed ops", lost = ["...", "..."] }`)
	var table map[string]toml.Primitive
	if !decodeTable(md, p, &table) {
		return nil, wrong
	}
	var out []string
	for _, event := range sortedKeys(table) {
		var one string
		many := []string{}
		if md.PrimitiveDecode(table[event], &one) == nil {
			many = []string{one}
		} else if md.PrimitiveDecode(table[event], &many) != nil {
			return nil, wrong
		}
		for _, command := range many {
			out = append(out, event+"="+command)
		}
	}
	return out, nil
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
