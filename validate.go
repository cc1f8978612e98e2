package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// validate settles what depends on other settings, and refuses what cannot be right together. Every problem is found,
// each has its own sentence.
func (s *settler) validate() {
	s.validateArguments()
	s.validateKeys()
	s.validateTimes()
	s.validateChoices()
	s.settleDefaults()
}

// settleDefaults fills in what has a default that is more than a constant.
func (s *settler) settleDefaults() {
	c := s.cfg
	day := 24 * time.Hour
	c.HistoryAge, c.DoneAge = time.Duration(min(c.historyDays, 36500))*day, time.Duration(min(c.doneDays, 36500))*day
	c.named = c.Holder != ""
	if !c.named {
		c.Holder = s.hostname()
	}
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if s.verb.is(vHistory) && c.Limit == 0 && !c.JSON {
		c.Limit = defaultLimit
	}
}

func (s *settler) validateArguments() {
	c, n := s.verb, len(s.cfg.Keys)
	switch {
	case s.cfg.help:
	case c.is(vRun) && len(s.cfg.Command) == 0:
		s.wrong(codeUsage, "there is no COMMAND; write it last: lockrun --key KEY -- COMMAND [ARG...]")
	case c.is(vRun) && s.cfg.Command[0] == "":
		s.wrong(codeUsage, "COMMAND is empty; name a program")
	case n < c.minArgs:
		s.wrong(codeUsage, "lockrun %s needs an argument: lockrun %s %s", c.name, c.name, c.args)
	case c.maxArgs >= 0 && n > c.maxArgs:
		s.wrong(codeUsage, "lockrun %s does not take the argument %s; see lockrun help %s", c.name, quoted(s.cfg.Keys[c.maxArgs]), c.name)
	}
}

func (s *settler) validateKeys() {
	if s.cfg.help {
		return
	}
	if o := findOption(s.verb.bit, "key"); o != nil {
		set, given := s.chosen["key"]
		if !given && !s.verb.is(vDoctor) {
			s.wrong(codeUsage, "%s", s.noKey())
		} else if err := backends.CheckKey(s.cfg.Key); given && err != nil && s.cfg.Key != "" {
			s.wrong(codeUsage, "%s: %v", set.from, err) // a bad key is bad wherever it was written
		}
		return
	}
	if !s.verb.is(vStore) {
		return
	}
	for _, k := range s.cfg.Keys {
		if err := backends.CheckKey(k); err != nil {
			s.wrong(codeUsage, "%v", err)
		}
	}
}

// noKey says that there is no key, to somebody who mistyped a verb, or knows one of another version, too.
func (s *settler) noKey() string {
	word := s.verb.guessed
	if word == "" || strings.ContainsRune(word, '/') {
		return "there is no key; name the lease with --key KEY" + s.keyHint()
	}
	var verbs []string
	for _, c := range commands() {
		verbs = append(verbs, c.name)
	}
	return fmt.Sprintf("%s is no verb of this version of lockrun (%s), and as a COMMAND it needs a lease: --key KEY%s",
		quoted(word), strings.Join(verbs, ", "), s.keyHint())
}

// keyHint explains why a variable that is there is not looked at.
func (s *settler) keyHint() string {
	if s.env["LOCKRUN_KEY"] != "" && s.env["LOCKRUN_OWNER"] != "" {
		return " (LOCKRUN_KEY is the outer lockrun's and is not read)"
	}
	if len(s.cfg.Keys) > 0 {
		return "; here it is no argument"
	}
	if s.verb.is(vRun) && s.verb.guessed == "" && len(s.flags) == 0 {
		return ", or see lockrun help for the verbs"
	}
	return ""
}

// validateTimes holds the relations without which a lease cannot be kept, or a job not be stopped in time.
func (s *settler) validateTimes() {
	c := s.cfg
	_, ttlGiven := s.chosen["ttl"]
	_, c.graceGiven = s.chosen["grace"]
	if c.TTL == ttlFromHistory {
		s.validateAutoTTL()
		return
	}
	if s.verb.is(vRenew) && !ttlGiven {
		c.TTL = 0
		return
	}
	if c.TTL < minTTL && s.verb.is(vLease|vRenew|vDoctor) {
		s.conflict([]string{"ttl"}, "%s is shorter than %v: a busy host would lose such a lease by itself", s.told("ttl", c.TTL), minTTL)
		return
	}
	if !s.verb.is(vLease | vDoctor) {
		return
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.TTL / 3
	}
	if c.Heartbeat > c.TTL/2 {
		s.conflict([]string{"heartbeat", "ttl"}, "%s is more than half of %s, so one renewal that fails would lose the lease; at most %v",
			s.told("heartbeat", c.Heartbeat), s.told("ttl", c.TTL), c.TTL/2)
		return
	}
	if c.Grace == 0 {
		c.Grace = min(defaultGrace, c.TTL/6)
	} else if c.Grace+c.Heartbeat >= c.TTL {
		s.conflict([]string{"grace", "heartbeat", "ttl"}, "%s and %s together are not under %s, so a job could not be stopped before the lease passes to another; the grace must be under %v",
			s.told("grace", c.Grace), s.told("heartbeat", c.Heartbeat), s.told("ttl", c.TTL), c.TTL-c.Heartbeat)
	}
}

// told names a setting with its value and where it comes from.
func (s *settler) told(id string, d time.Duration) string {
	set, given := s.chosen[id]
	switch {
	case !given:
		return "the default " + id + " of " + shortDuration(d)
	case set.level == fromFile:
		return set.from + ": " + id + " " + shortDuration(d)
	}
	return set.from + " " + shortDuration(d)
}

// conflict is a problem of settings that are each right. It is the configuration file's only where nobody overrode it.
func (s *settler) conflict(ids []string, format string, a ...any) {
	code := codeConfig
	for _, id := range ids {
		if set, given := s.chosen[id]; given && set.level > fromFile {
			code = codeUsage
		}
	}
	if s.verb.is(vDoctor) && ids[0] != "quiet" { // a finding, where a run would be refused
		s.cfg.conflicts = append(s.cfg.conflicts, problem{code, fmt.Sprintf(format, a...)})
		return
	}
	s.wrong(code, format, a...)
}

// given tells whether somebody set the option, be it to something that is refused.
func (s *settler) given(id string) bool {
	_, given := s.chosen[id]
	return given
}

// exclusive refuses two settings of one level that contradict each other; of two levels the higher wins. It tells
// whether a is to be used.
func (s *settler) exclusive(a, b, why string) (useA, useB bool) {
	sa, okA := s.chosen[a]
	sb, okB := s.chosen[b]
	if okA && okB && sa.level == sb.level {
		s.conflict([]string{a, b}, "%s and %s: %s; leave one of them out", sa.from, sb.from, why)
	}
	return okA && (!okB || sa.level >= sb.level), okB && (!okA || sb.level >= sa.level)
}

func (s *settler) validateChoices() {
	c := s.cfg
	if s.verb.is(vLease | vDoctor) {
		useTick, useID := s.exclusive("schedule", "run-id", "both name the run")
		if !useTick {
			c.Schedule = ""
		}
		if !useID {
			c.RunID = ""
		}
		s.validateSchedule()
	}
	if c.Quiet && c.Verbose {
		c.Quiet, c.Verbose = s.exclusive("quiet", "verbose", "they contradict each other")
	}
	if c.help {
		return
	}
	switch {
	case s.verb.is(vUnlock) && c.Force && s.chosen["token"].level == fromFlag:
		s.wrong(codeUsage, "--force breaks whichever lease is there and --token only that one; leave one of them out")
	case s.verb.is(vUnlock) && c.Force:
		c.Token = 0
	case s.verb.is(vUnlock) && !s.given("token"):
		s.wrong(codeUsage, "nothing says which lease is meant; give its --token (lockrun status tells it), or --force for whichever is there")
	case s.verb.is(vRenew|vRelease) && !s.given("token"):
		s.wrong(codeUsage, "there is no token; give the --token that lockrun acquire printed")
	case s.verb.is(vStatus) && !c.Watch && s.chosen["interval"].level == fromFlag:
		s.wrong(codeUsage, "--interval has no use without --watch, because the status is told once")
	case s.verb.is(vHistory) && !c.Follow && s.chosen["interval"].level == fromFlag:
		s.wrong(codeUsage, "--interval has no use without --follow, because the history is told once")
	case s.verb.is(vAcquire) && !s.given("while-pid") && s.chosen["heartbeat"].level == fromFlag:
		s.wrong(codeUsage, "--heartbeat has no use without --while-pid, because nobody stays to renew the lease")
	}
}

func (s *settler) validateSchedule() {
	if s.cfg.Schedule == "" {
		return
	}
	if _, err := parseSchedule(s.cfg.Schedule); err != nil {
		set := s.chosen["schedule"]
		s.problems = append(s.problems, set.problem(findOption(s.verb.bit, "schedule"), quoted(s.cfg.Schedule)+" "+err.Error()))
	}
}
