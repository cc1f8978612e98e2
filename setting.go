package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// level tells where a setting comes from; a higher one wins.
type level int

const (
	fromDefault level = iota
	fromFile
	fromEnv
	fromFlag
)

// setting is a value as it was written, and where: "--ttl", "LOCKRUN_TTL", "/etc/lockrun/config.toml:3".
type setting struct {
	values []string
	from   string
	level  level
}

// problem is one thing that is wrong with an invocation, and the exit code it leads to.
type problem struct {
	code int
	text string
}

func (s setting) problem(o *option, why string) problem {
	code, what := codeUsage, s.from
	switch {
	case s.level == fromFile:
		code, what = codeConfig, s.from+": "+o.toml
	case s.level == fromFlag && o.short != "": // which of the two was written is not kept
		what = "-" + o.short + ", " + s.from
	}
	return problem{code: code, text: fmt.Sprintf("%s %s", what, why)}
}

// put turns the setting into the option's value and stores it in c. It returns what is wrong, or nil.
func (o *option) put(c *Config, s setting) *problem {
	switch o.kind {
	case kindPairs:
		return o.putPairs(c, s)
	case kindList:
		return o.putList(c, s)
	case kindHooks:
		return o.putHooks(c, s)
	}
	text := s.values[len(s.values)-1]
	if text == "" && o.off && s.level == fromFile {
		return nil // the value is what it was from the beginning: none
	}
	err := o.parse(o.at(c), text)
	if err == nil {
		return nil
	}
	shown := quoted(text)
	if o.secret() {
		shown = ""
	}
	p := s.problem(o, strings.TrimPrefix(shown+" ", " ")+err.Error())
	return &p
}

// secret tells whether the option's value may hold a password.
func (o *option) secret() bool {
	switch o.name {
	case "backend", "record", "fallback", "pushgateway", "hook", "ping":
		return true
	}
	return false
}

// quoted shows what a user wrote, cut where it is long.
func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return strconv.Quote(s)
}

var errEmpty = errors.New("is empty; give a value or leave it out")

// parse reads text into what at points to.
func (o *option) parse(at any, text string) error {
	if text == "" {
		return errEmpty
	}
	switch o.kind {
	case kindChoice:
		return o.parseChoice(at.(*string), text)
	case kindDuration, kindSpan, kindWait, kindLength:
		return o.parseTime(at.(*time.Duration), text)
	case kindCount:
		return o.parseCount(at, text)
	case kindSwitch:
		return parseSwitch(at.(*bool), text)
	default:
		return o.parseText(at.(*string), text)
	}
}

func (o *option) parseText(at *string, text string) error {
	switch {
	case strings.IndexByte(text, 0) >= 0 && o.name != "key": // that one has a rule of its own
		return fmt.Errorf("holds a NUL byte; take it out")
	case o.check != nil:
		if err := o.check(text); err != nil {
			return fmt.Errorf("is refused: %w", err)
		}
	}
	*at = text
	return nil
}

func (o *option) parseChoice(at *string, text string) error {
	words := strings.Fields(o.choices)
	if !slices.Contains(words, text) {
		return fmt.Errorf("is not one of %s", strings.Join(words, ", "))
	}
	*at = text
	return nil
}

func (o *option) parseTime(at *time.Duration, text string) (err error) {
	if o.kind == kindWait && text == "forever" {
		*at = WaitForever
		return nil
	}
	if o.kind == kindLength && text == "auto" {
		*at = ttlFromHistory
		return nil
	}
	read := parseSpan
	if o.kind == kindDuration || o.kind == kindLength {
		read = parseDuration
	}
	d, err := read(text)
	if err == nil {
		*at = d
	}
	return err
}

func (o *option) parseCount(at any, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	most := int64(maxCount)
	if _, wide := at.(*int64); wide {
		most = 1<<53 - 1 // tokens stay below what a reader of JSON can hold
	}
	if err != nil || n < int64(o.min) || n > most {
		return fmt.Errorf("is not a whole number from %d to %d", o.min, most)
	}
	switch at := at.(type) {
	case *int64:
		*at = n
	case *int:
		*at = int(n)
	}
	return nil
}

func parseSwitch(at *bool, text string) error {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("is neither true nor false")
	}
	*at = b
	return nil
}

// putList takes all values of one level; what lower levels gave does not count.
func (o *option) putList(c *Config, s setting) *problem {
	values := make([]string, len(s.values))
	for i, text := range s.values {
		err := errEmpty
		if text != "" {
			err = o.parseText(&values[i], text)
		}
		if err != nil {
			p := s.problem(o, err.Error())
			return &p
		}
	}
	*o.at(c).(*[]string) = values
	return nil
}

// putPairs adds --exit-code's pairs to what lower levels gave.
func (o *option) putPairs(c *Config, s setting) *problem {
	for _, v := range s.values {
		name, code, err := parseExitCode(v)
		if err != nil {
			p := s.problem(o, quoted(v)+" "+err.Error())
			return &p
		}
		if c.ExitCodes == nil {
			c.ExitCodes = map[string]int{}
		}
		c.ExitCodes[name] = code
	}
	return nil
}

// parseExitCode reads NAME=N.
func parseExitCode(s string) (name string, code int, err error) {
	name, text, found := strings.Cut(s, "=")
	if !found {
		return "", 0, fmt.Errorf("is not NAME=N; write it like skipped=0")
	}
	if _, ok := exitNames[name]; !ok {
		return "", 0, fmt.Errorf("names no exit code; the names are %s", strings.Join(sortedExitNames(), ", "))
	}
	code, err = strconv.Atoi(text)
	if err != nil || code < 0 || code > 255 || text[0] == '+' || text[0] == '-' {
		return "", 0, fmt.Errorf("has no code from 0 to 255 after the equals sign")
	}
	return name, code, nil
}
