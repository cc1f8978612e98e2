package main

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// fake is a run of a key that began at 0 ms of its own time and whose job ended well.
func fake(n int, key string, from, to time.Duration, token int64) *run {
	return &run{N: n, Plan: plan{Key: key, Slots: 1, TTL: time.Second}, Began: from - ms, Ended: to + ms, Gone: to + ms, Job: &life{
		Token: token, Slot: "0", Start: from, Seen: to, Done: to, Read: int64(n - 1), Writer: n - 1, ReadAt: from, Wrote: int64(n), WroteAt: to}}
}

// The checker is shown histories that it has to accept, and those that it has to refuse, by exactly these rules.
func TestChecker(t *testing.T) {
	t.Parallel()
	a, b := func() *run { return fake(1, "k", 10*ms, 100*ms, 5) }, func() *run { return fake(2, "k", 200*ms, 300*ms, 6) }
	early := func() *run { // beside a
		r := fake(2, "k", 50*ms, 150*ms, 6)
		r.Job.Read, r.Job.Writer = 0, 0
		return r
	}
	with := func(r *run, change func(*run)) *run { change(r); return r }
	frozen := act{Kind: freezeTree, From: 20 * ms, To: 120 * ms}
	for name, c := range map[string]struct {
		runs    []*run
		windows []window
		late    time.Duration
		want    []string
	}{
		"one after the other": {runs: []*run{a(), b()}},
		"two at once":         {runs: []*run{a(), early()}, want: []string{ruleOverlap, ruleUpdate}},
		"two at once, of which one was frozen as a whole": {runs: []*run{with(a(), func(r *run) { r.Acts = []act{frozen} }), early()}},
		"two at once, of which one was frozen only later": {want: []string{ruleOverlap, ruleUpdate},
			runs: []*run{with(a(), func(r *run) { r.Acts = []act{{freezeTree, 60 * ms, 120 * ms}} }), early()}},
		"two at once, of which one was stopped alone": {want: []string{ruleOverlap, ruleUpdate},
			runs: []*run{with(a(), func(r *run) { r.Acts = []act{{stopRun, 20 * ms, 120 * ms}} }), early()}},
		"two at once, after the record was removed": {runs: []*run{a(), early()}, windows: []window{{Fault: "x", From: 40 * ms, To: 41 * ms, Forgets: true, Key: "k"}}},
		"two at once, after the record of another key was removed": {runs: []*run{a(), early()}, want: []string{ruleOverlap, ruleUpdate},
			windows: []window{{Fault: "x", From: 40 * ms, To: 41 * ms, Forgets: true, Key: "other"}}},
		"two at once for longer than the machine was late": {runs: []*run{a(), early()}, late: 24 * ms, want: []string{ruleOverlap, ruleUpdate}},
		"two at once while the machine was late":           {runs: []*run{a(), early()}, late: 60 * ms},
		"two at once, as the kernel saw": {want: []string{ruleOverlap}, runs: []*run{a(), with(b(), func(r *run) {
			r.Job.Witnessed = []meeting{{"k.0.claim", 1, 250 * ms}}
		})}},
		"two at once in two slots": {runs: []*run{with(a(), twoSlots("0")), with(early(), twoSlots("1"))}},
		"a slot too many":          {runs: []*run{with(a(), func(r *run) { r.Job.Slot = "1" })}, want: []string{ruleSlot}},
		"a token twice":            {runs: []*run{a(), with(b(), func(r *run) { r.Job.Token = 5 })}, want: []string{ruleToken, ruleToken}},
		"a token that falls":       {runs: []*run{a(), with(b(), func(r *run) { r.Job.Token = 4 })}, want: []string{ruleToken}},
		"a token that is refused":  {runs: []*run{with(a(), func(r *run) { r.Job.Fence = "refused" })}, want: []string{ruleFence}},
		"a token that is refused, since the store had forgotten its lease": {runs: []*run{with(a(), func(r *run) { r.Job.Token = 7 }), with(b(), func(r *run) {
			r.Began, r.Job.Fence = 5*ms, "refused"
		})}, windows: []window{{Fault: "x", From: 8 * ms, To: 9 * ms, Forgets: true, Key: "k"}}},
		"a token that is refused, although what was forgotten came later": {runs: []*run{with(a(), func(r *run) { r.Job.Token = 7 }), with(b(), func(r *run) {
			r.Began, r.Job.Fence = 5*ms, "refused"
		})}, windows: []window{{Fault: "x", From: 150 * ms, To: 160 * ms, Forgets: true, Key: "k"}}, want: []string{ruleFence}},
		"an update that is gone": {runs: []*run{a(), with(b(), func(r *run) { r.Job.Read, r.Job.Wrote = 0, 1 })}, want: []string{ruleUpdate}},
		"a run id that succeeds twice": {want: []string{ruleOnce}, runs: []*run{
			with(a(), func(r *run) { r.Plan.RunID = "id" }), with(b(), func(r *run) { r.Plan.RunID = "id" })}},
		"a run id that is done":              {runs: []*run{with(a(), func(r *run) { r.Plan.RunID = "id" }), noJob(codeDone, "id")}},
		"a run id that is done by nobody":    {runs: []*run{noJob(codeDone, "id")}, want: []string{ruleDone}},
		"a skip":                             {runs: []*run{a(), noJob(codeSkipped, "")}},
		"a skip without a holder":            {runs: []*run{noJob(codeSkipped, "")}, want: []string{ruleSkip}},
		"69 without a cause":                 {runs: []*run{noJob(codeUnavailable, "")}, want: []string{ruleUnknown}},
		"69 while the server was frozen":     {runs: []*run{noJob(codeUnavailable, "")}, windows: []window{{Fault: "x", From: 0, To: 20 * ms}}},
		"69 of a run whose job was started":  {runs: []*run{with(a(), func(r *run) { r.Code = codeUnavailable })}, want: []string{ruleUnknown}},
		"79 on a quiet machine":              {runs: []*run{with(a(), func(r *run) { r.Code = codeLost })}, want: []string{ruleLost}},
		"0 of a job that did not end":        {runs: []*run{with(a(), func(r *run) { r.Job.Done = 0 })}, want: []string{ruleCode}},
		"0 of a job that failed":             {runs: []*run{with(a(), func(r *run) { r.Job.Code = 3 })}, want: []string{ruleCode}},
		"143 that nobody sent":               {runs: []*run{with(a(), func(r *run) { r.Code = 143 })}, want: []string{ruleCode}},
		"70":                                 {runs: []*run{with(a(), func(r *run) { r.Code = 70 })}, want: []string{ruleCode}},
		"a tree that outlives lockrun":       {runs: []*run{with(a(), func(r *run) { r.Gone = 9 * time.Second })}, want: []string{ruleGone}},
		"a tree that was never seen to end":  {runs: []*run{with(a(), func(r *run) { r.Gone = 0 })}, want: []string{ruleGone}},
		"a server whose counters were reset": {runs: []*run{a(), with(b(), func(r *run) { r.Job.Token = 1 })}, windows: []window{{Fault: "x", From: 150 * ms, To: 160 * ms, Tokens: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &checker{runs: c.runs, windows: c.windows, now: time.Minute, late: &lateness{}}
			k.late.note(60*ms, c.late)
			k.check()
			var got []string
			for _, v := range k.out {
				got = append(got, v.Rule)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("broken: %q, want %q; %v", got, c.want, k.out)
			}
		})
	}
}

func twoSlots(slot string) func(*run) {
	return func(r *run) { r.Plan.Slots, r.Job.Slot, r.Job.Read, r.Job.Writer = 2, slot, 0, 0 }
}

// noJob is a run that was refused beside a of TestChecker.
func noJob(code int, id string) *run {
	return &run{N: 7, Plan: plan{Key: "k", Slots: 1, TTL: time.Second, RunID: id}, Began: 20 * ms, Ended: 30 * ms, Gone: 30 * ms, Code: code}
}

// The same seed plans the same runs.
func TestPlansFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	ttls := []time.Duration{300 * ms, time.Second}
	one, same, other := &game{config: config{seed: 1, ttls: ttls, harmed: 50}}, &game{config: config{seed: 1, ttls: ttls, harmed: 50}}, &game{config: config{seed: 2, ttls: ttls, harmed: 50}}
	differ := 0
	for n := range 200 {
		p := one.newPlan(3, n)
		if q := same.newPlan(3, n); p != q {
			t.Fatalf("run %d: %+v, then %+v", n, p, q)
		}
		if p != other.newPlan(3, n) {
			differ++
		}
	}
	if differ < 190 {
		t.Errorf("another seed plans %d of 200 runs alike", 200-differ)
	}
}
