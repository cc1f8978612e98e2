package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Exit codes of lockrun, as its documentation has them: what is judged here is the program, not its source.
const (
	codeUnavailable = 69
	codeSkipped     = 75
	codeDone        = 76
	codeLost        = 79
	codeTimeout     = 124
	codeBroken      = 99 // the job's own failure
)

// one judges a run by itself: what it exited with, and what it left.
func (k *checker) one(r *run) {
	if r.Job != nil && r.Plan.Slots > 0 {
		if slot := r.Job.Slot; len(slot) != 1 || int(slot[0]-'0') >= r.Plan.Slots {
			k.wrong(ruleSlot, fmt.Sprintf("slot %s of %d", slot, r.Plan.Slots), r)
		}
	}
	if r.Ended == 0 {
		return
	}
	k.gone(r)
	if why := k.code(r); why != "" {
		rule := ruleCode
		switch r.Code {
		case codeSkipped:
			rule = ruleSkip
		case codeUnavailable:
			rule = ruleUnknown
		case codeLost:
			rule = ruleLost
		}
		k.wrong(rule, fmt.Sprintf("%d of a run on %s with a TTL of %v: %s; done to it: %s; it said %q", r.Code, r.Plan.Key, r.Plan.TTL, why, r.acts(), r.Stderr), r)
	}
}

// gone: nothing of the tree is left when lockrun has ended, or within a second where it was killed.
func (k *checker) gone(r *run) {
	gone := cmp.Or(r.Gone, k.now)
	if most := r.Ended + killBound + k.slack; gone > most {
		k.wrong(ruleGone, fmt.Sprintf("something was alive for %v after lockrun's end with %d; done to it: %s", gone-r.Ended, r.Code, r.acts()), r)
	}
}

func (r *run) acts() string {
	var all []string
	for _, a := range r.Acts {
		all = append(all, a.Kind)
	}
	return strings.Join(all, ", ")
}

// code tells why an exit code does not fit what happened, "" where it does.
func (k *checker) code(r *run) string {
	started, done := r.Job != nil, r.Job != nil && r.Job.Done > 0
	switch {
	case r.Killed:
		return unless(r.did(killRun, killBoth), "nobody killed it")
	case r.Code == codeSkipped && started, r.Code == codeDone && started, r.Code == codeUnavailable && started:
		return "the job was started"
	case r.Code == codeSkipped:
		return unless(k.hadHolder(r), "nobody can have held the key")
	case r.Code == codeDone:
		return unless(r.Plan.RunID != "", "it asked for no run id")
	case r.Code == codeUnavailable:
		return unless(k.troubled(r) || r.did(stopRun, stopBoth, freezeTree) || k.slow(r), "nothing was wrong with the store")
	case r.Code == codeLost:
		return k.lost(r)
	case r.Code == codeTimeout:
		return unless(r.Plan.Timeout > 0, "it has no timeout")
	case r.Code == codeBroken:
		return "the job could not do its work"
	case r.Code > 128:
		return k.bySignal(r, started)
	}
	return unless(done && r.Job.Code == r.Code, "no job ended with it")
}

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

// slow: on a machine that is late a store may not answer in time, or with a grant that has outlived its lease by then.
func (k *checker) slow(r *run) bool {
	late := k.late != nil && k.late.most(r.Began, r.Ended) > quiet
	if late {
		k.starved++
	}
	return late
}

// bySignal judges 128+N: a signal that ended the job, or lockrun before there was one.
func (k *checker) bySignal(r *run, started bool) string {
	switch r.Code - 128 {
	case 9:
		return unless(started && r.did(killJob, killBoth), "nobody killed the job")
	case 1, 2, 15:
		return unless(r.did(storm), "nobody sent that signal")
	}
	return "nobody sent that signal"
}

// lost judges 79. A machine that is too busy for a short lease loses it, which is no fault of lockrun's; a quiet one does
// not.
func (k *checker) lost(r *run) string {
	if r.did(stopRun, stopBoth, freezeTree) || k.troubled(r) {
		return ""
	}
	for _, w := range k.windows {
		if w.forgot(r.Plan.Key) && r.Began <= cmp.Or(w.To, k.now) && w.From <= r.Ended {
			return ""
		}
	}
	k.starved++
	if k.late == nil || k.late.most(0, k.now) > quiet {
		return ""
	}
	return "nothing happened to it, and the machine was never late"
}

// quiet is how late a machine may be that has time for everybody.
const quiet = 40 * time.Millisecond

// troubled tells whether something was wrong with the store while a run lasted, or shortly before.
func (k *checker) troubled(r *run) bool {
	return slices.ContainsFunc(k.windows, func(w window) bool {
		return w.Key == "" && w.From <= r.Ended && r.Began <= cmp.Or(w.To, k.now)+afterTrouble+k.slack
	})
}

// afterTrouble is how long connections and back-offs may go on feeling what is over.
const afterTrouble = 2 * time.Second

// hadHolder tells whether another run can have held the key while this one asked.
func (k *checker) hadHolder(r *run) bool {
	return slices.ContainsFunc(k.runs, func(o *run) bool {
		return o != r && o.Plan.Key == r.Plan.Key && o.Began <= r.Ended && k.mayHoldUntil(o) >= r.Began
	})
}

// mayHoldUntil is the last moment at which a lease of a run may still be there.
func (k *checker) mayHoldUntil(o *run) time.Duration {
	if o.Ended == 0 {
		return k.now
	}
	left := o.Killed || o.Code == codeLost || o.Code == codeUnavailable || o.Code > 128 || o.Stderr != ""
	if !left {
		return o.Ended + k.slack
	}
	until, shift := o.Ended, time.Duration(0)
	for _, w := range k.windows {
		if w.From <= o.Ended && o.Began <= cmp.Or(w.To, k.now) {
			until = max(until, cmp.Or(w.To, k.now)) // what was asked for may be granted only then
		}
		shift = max(shift, w.Shift)
	}
	return until + o.Plan.TTL + shift + k.slack
}
