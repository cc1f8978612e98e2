package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// jobRuns is how many records of the job are looked at, refusals included.
const jobRuns = 500

// ttlRoom is how much longer than the longest run a lease should be, for a run of usual length to end even if the store
// answers no renewal at all.
const ttlRoom = 1.5

// job is the settings of one job and what is known of its runs.
type job struct {
	cfg     *Config
	auto    bool // --ttl auto
	t       timing
	granted time.Duration // of the TTL, by stores that grant less than any
	env     []string
	stores  []examinedStore
	past    []backends.Record // newest first
	pastErr error
	longest time.Duration // of the runs that ended by themselves; 0 for none
	runs    int           // how many these were
	checks  []backends.Check
}

// jobChecks examine the settings of the job, as flags, variables and [jobs.KEY] give them. Without a key there is none;
// what a run would be refused for is a finding all the same.
func (c *call) jobChecks(stores []examinedStore) []backends.Check {
	j := &job{cfg: c.cfg, auto: c.cfg.AutoTTL, env: c.io.Env, stores: stores}
	for _, p := range c.cfg.conflicts {
		j.fail("settings", p.text, fmt.Sprintf("a run with these settings is refused (%d)", p.code))
	}
	if c.cfg.Key == "" || len(j.checks) > 0 {
		return j.checks
	}
	j.readPast()
	if j.auto {
		j.cfg = c.cfg.withTTL(ttlFor(j.successes()))
	}
	g, name := j.grant()
	j.granted, j.t = g.TTL, newTiming(g, j.cfg)
	j.ttl()
	if err := misfit(g, j.cfg, name); err != nil && g.TTL < j.cfg.TTL { // of what no store limits, how much a store relies on is not known here
		j.fail("grace", err.Error(), fmt.Sprintf("a run with these settings is refused (%d)", codeUsage))
	} else {
		j.heartbeat()
		j.grace()
		j.pod()
	}
	j.timeout()
	j.schedule()
	j.choices()
	return j.checks
}

// grant is what the stores that are to be held would grant, and the name of the one that would grant the least.
func (j *job) grant() (backends.Grant, string) {
	ttl, name := j.cfg.TTL, "the store"
	for _, s := range j.stores {
		if s.most != 0 && s.most < ttl && slices.Contains(j.cfg.Backends, s.store) {
			ttl, name = s.most, s.name
		}
	}
	return backends.Grant{TTL: ttl, Drift: ttl/100 + 2*time.Millisecond}, name
}

func (j *job) add(check string, ok bool, cause, remedy string) {
	j.checks = append(j.checks, backends.Check{Backend: "job", Check: check, OK: ok, Cause: cause, Remedy: remedy})
}

func (j *job) fail(check, cause, remedy string) { j.add(check, false, cause, remedy) }

// readPast looks where the history of runs is: in the record store where there is one, in the first backend else.
func (j *job) readPast() {
	where := j.cfg.Backends[0]
	if j.cfg.Record != nil {
		where = *j.cfg.Record
	}
	for _, s := range j.stores {
		if s.store == where {
			j.past, j.pastErr = s.past, s.pastErr
		}
	}
	for _, r := range j.past {
		if (r.Outcome == backends.Succeeded || r.Outcome == backends.Failed) && r.Duration != nil {
			j.runs++
			j.longest = max(j.longest, *r.Duration)
		}
	}
}

// successes are the runs that --ttl auto goes by.
func (j *job) successes() []backends.Record {
	return backends.Query{Outcomes: []backends.Outcome{backends.Succeeded}, Limit: autoTTLRuns}.Select(slices.Clone(j.past))
}

// ttl compares the length of the lease with that of runs.
func (j *job) ttl() {
	ttl := shortDuration(j.cfg.TTL)
	if j.auto {
		ttl += " now, settled before each run by the history"
	}
	short := j.granted < j.cfg.TTL
	if short {
		ttl += fmt.Sprintf(", of which the store grants %s", shortDuration(j.granted))
	}
	switch {
	case j.pastErr != nil:
		j.fail("ttl", fmt.Sprintf("the history of %s cannot be read: %v", quoted(j.cfg.Key), j.pastErr), "look at what is said of the store")
	case j.runs == 0:
		j.add("ttl", true, fmt.Sprintf("%s; the history has no finished run of %s to compare it with", ttl, quoted(j.cfg.Key)), "")
	default:
		cause := ttl + "; " + j.longestRun()
		advised := max(roundUp(time.Duration(ttlRoom*float64(j.longest))), minTTL)
		switch {
		case j.granted >= advised, j.auto && !short:
			j.add("ttl", true, cause, "")
			return
		case short:
			j.add("ttl", true, cause, fmt.Sprintf("renewals keep a shorter lease alive, but only with one of %s (%v times the longest run) a run also ends well when the store is away all the while: have the store keep longer leases where that matters",
				shortDuration(advised), ttlRoom))
			return
		}
		j.add("ttl", true, cause, fmt.Sprintf("renewals keep a shorter lease alive, but with --ttl %s (%v times the longest run) a run also ends well when the store is away all the while; "+
			"it is also how long a host that vanishes blocks the key", shortDuration(advised), ttlRoom))
	}
}

// roundUp makes a duration that is to be written down a round one.
func roundUp(d time.Duration) time.Duration {
	step := time.Second
	switch {
	case d > time.Hour:
		step = 5 * time.Minute
	case d > 5*time.Minute:
		step = time.Minute
	case d > time.Minute:
		step = 10 * time.Second
	}
	return (d + step - 1) / step * step
}

func (j *job) longestRun() string {
	if j.runs == 1 {
		return "the only run in the history took " + shortDuration(j.longest)
	}
	return fmt.Sprintf("the longest of the last %d runs took %s", j.runs, shortDuration(j.longest))
}

// heartbeat compares the renewal interval with how long the stores take to answer.
func (j *job) heartbeat() {
	worst := time.Duration(0)
	for _, s := range j.stores {
		if len(s.took) > 0 {
			worst = max(worst, slices.Max(s.took))
		}
	}
	if worst == 0 {
		j.add("heartbeat", true, shortDuration(j.t.Every)+"; no store answered, so there is nothing to compare it with", "")
		return
	}
	term, _, _ := j.t.deadlines(0)
	budget := term - j.t.Every
	cause := fmt.Sprintf("renewed every %s; reading took at most %s just now, and a renewal may take %s before COMMAND is stopped",
		shortDuration(j.t.Every), shortDuration(max(worst, time.Millisecond)), shortDuration(budget))
	switch {
	case worst >= budget:
		j.fail("heartbeat", cause, fmt.Sprintf("such a lease is lost to a slow answer; give it a --ttl of at least %s", shortDuration(roundUp(20*worst))))
	case 5*worst >= budget:
		j.add("heartbeat", true, cause, fmt.Sprintf("one answer that takes five times as long loses the lease; a --ttl of %s leaves room", shortDuration(roundUp(30*worst))))
	default:
		j.add("heartbeat", true, cause, "")
	}
}

// killed is the exit code of a command that did not obey TERM.
const killed = 128 + 9

// grace compares the time to end with the lease, and with how runs ended that were told to.
func (j *job) grace() {
	term, _, until := j.t.deadlines(0)
	cause := fmt.Sprintf("%s from TERM to KILL; without an answer from the store TERM comes %s after the last good renewal was sent, and the lease ends %s after it",
		shortDuration(j.t.Grace), shortDuration(term), shortDuration(until))
	stopped, forced := 0, 0
	for _, r := range j.past {
		if (r.Outcome == backends.Lost || r.Outcome == backends.TimedOut) && r.ExitCode != nil {
			stopped++
			if *r.ExitCode == killed {
				forced++
			}
		}
	}
	switch {
	case forced > 0:
		j.add("grace", true, fmt.Sprintf("%s; of %d runs that had to be stopped %d ended by KILL", cause, stopped, forced),
			"have COMMAND end at TERM, or give it a longer --grace (grace and heartbeat together stay under the TTL)")
	case j.t.Grace < j.cfg.Grace:
		j.add("grace", true, cause, fmt.Sprintf("the default of %s is shortened with the lease; a --grace of your own is kept to, or the run refused", shortDuration(j.cfg.Grace)))
	case j.cfg.Grace < defaultGrace && j.cfg.Grace == j.cfg.TTL/6:
		j.add("grace", true, cause, fmt.Sprintf("the default of %s does not fit this TTL and is shortened; from --ttl %s on it does", shortDuration(defaultGrace), shortDuration(6*defaultGrace)))
	default:
		j.add("grace", true, cause, "")
	}
}

// timeout compares --timeout with runs that ended by themselves.
func (j *job) timeout() {
	if j.cfg.Timeout == 0 {
		return
	}
	cause := shortDuration(j.cfg.Timeout)
	if j.runs > 0 {
		cause += "; " + j.longestRun()
	}
	remedy := ""
	if 5*j.longest > 4*j.cfg.Timeout {
		remedy = "a run a little longer than that one is stopped; leave more room"
	}
	j.add("timeout", true, cause, remedy)
}

// schedule compares runs with the time from one tick to the next.
func (j *job) schedule() {
	if j.cfg.Schedule == "" {
		return
	}
	s, err := parseSchedule(j.cfg.Schedule)
	if err != nil {
		return // settle has refused it
	}
	first := s.after(time.Now())
	next := s.after(first)
	if first.IsZero() || next.IsZero() {
		j.add("schedule", true, "it has no two ticks in the years to come", "")
		return
	}
	gap := next.Sub(first)
	cause := fmt.Sprintf("the next tick is %s, the one after it %s later", first.Format(time.RFC3339), shortDuration(gap))
	remedy := ""
	if j.longest > gap {
		remedy = fmt.Sprintf("runs took up to %s, so some ticks meet the run of an earlier one and are skipped; run it less often, or --wait for it", shortDuration(j.longest))
	}
	j.add("schedule", true, cause, remedy)
}

// choices are those that give up a promise.
func (j *job) choices() {
	if j.cfg.OnLost == "continue" {
		j.add("on-lost", true, "COMMAND goes on when the lease is lost", "then two may run at once: have what it writes to check LOCKRUN_TOKEN")
	}
	switch j.cfg.OnUnavail {
	case "run":
		j.add("on-unavailable", true, "COMMAND runs without a lease while the store cannot answer", "then every host runs it: use that only for what may run twice")
	case "fallback":
		j.add("on-unavailable", true, "while the store cannot answer, the lease of the fallback is taken instead", "it keeps apart only those who share it, and gives no token: watch lockrun_fallbacks_total")
	case "skip":
		j.add("on-unavailable", true, "a run is skipped (75) while the store cannot answer", "a job that does not run for days looks like one that had nothing to do: alert on its last success")
	}
}

// podGrace is terminationGracePeriodSeconds where a pod does not say.
const podGrace = 30 * time.Second

// pod compares the grace with the time that Kubernetes leaves a pod to end. That time stands in the pod's specification,
// which neither the environment nor the downward API shows to those inside.
func (j *job) pod() {
	if variable(j.env, "KUBERNETES_SERVICE_HOST") == "" {
		return
	}
	need := j.t.Grace + 2*time.Second
	told := "and the lease is given back"
	if watches(j.cfg) { // a TERM that COMMAND got does not shorten the wait for them
		need += j.cfg.HookTimeout
		told = "the lease is given back, and hooks, pings and pushes have " + shortDuration(j.cfg.HookTimeout)
	}
	need = need.Round(time.Second)
	cause := fmt.Sprintf("when the pod is deleted COMMAND gets TERM, what it leaves behind KILL after %s, %s: that takes up to %s besides COMMAND's own time to end",
		shortDuration(j.t.Grace), told, shortDuration(need))
	if need >= podGrace {
		j.add("terminationGracePeriodSeconds", true, cause, fmt.Sprintf("the default of %d is too short: set it to %d or more, else the kubelet kills all of it at once and the lease lasts for its TTL",
			int(podGrace.Seconds()), int(need.Seconds())+10))
		return
	}
	j.add("terminationGracePeriodSeconds", true, cause+fmt.Sprintf("; the default of %d is enough where COMMAND ends soon, and whether this pod has another cannot be seen from inside", int(podGrace.Seconds())), "")
}
