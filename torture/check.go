package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// checker judges a game by what its jobs told and what was done to them. It asks no lockrun and no store.
type checker struct {
	runs    []*run
	windows []window
	slack   time.Duration // what a busy machine may add
	now     time.Duration

	byN     map[int]*run
	met     map[[2]int]string // overlapping runs, older first, and what excuses them; "" for nothing
	out     []violation
	starved int
	late    *lateness
}

// killBound is how soon a tree has to be dead once nothing keeps it from being killed; the contract says a second.
const killBound = time.Second

// check applies all rules.
func (k *checker) check() {
	k.byN, k.met = map[int]*run{}, map[[2]int]string{}
	for _, r := range k.runs {
		k.byN[r.N] = r
	}
	k.witnesses()
	places, ids := map[string][]*run{}, map[string][]*run{}
	for _, r := range k.runs {
		if r.Job != nil {
			at := r.Plan.Key + "." + r.Job.Slot
			places[at] = append(places[at], r)
		}
		if r.Plan.RunID != "" {
			at := r.Plan.Key + " " + r.Plan.RunID
			ids[at] = append(ids[at], r)
		}
	}
	for _, at := range sorted(places) {
		rs := places[at]
		slices.SortFunc(rs, func(a, b *run) int { return cmp.Compare(a.Job.Start, b.Job.Start) })
		k.intervals(rs)
		k.tokens(rs)
		k.updates(rs)
	}
	for _, at := range sorted(ids) {
		k.successes(ids[at])
	}
	k.unique()
	for _, r := range k.runs {
		k.one(r)
	}
}

func (k *checker) wrong(rule, what string, rs ...*run) {
	v := violation{Rule: rule, What: what}
	for _, r := range rs {
		v.Runs = append(v.Runs, r.N)
	}
	k.out = append(k.out, v)
}

// witnesses are the overlaps that the kernel testified to, at the very moment.
func (k *checker) witnesses() {
	for _, r := range k.runs {
		if r.Job == nil {
			continue
		}
		for _, m := range r.Job.Witnessed {
			until := cmp.Or(m.Until, r.last())
			other := k.byN[m.Other]
			if other == nil || other.Job == nil {
				k.wrong(ruleOverlap, fmt.Sprintf("the claim %s was taken, by run %d", m.Claim, m.Other), r)
				continue
			}
			k.meet(other, r, until, "the kernel saw both")
		}
	}
}

// intervals finds overlaps by what the jobs told of their own times.
func (k *checker) intervals(rs []*run) {
	for i, r := range rs {
		for _, next := range rs[i+1:] {
			if next.Job.Start >= r.last() {
				break
			}
			k.meet(r, next, min(r.last(), next.last()), "by their own clocks")
		}
	}
}

const (
	ruleOverlap = "no two holders at once"
	ruleToken   = "tokens rise"
	ruleUpdate  = "no update is lost"
	ruleFence   = "no token is refused"
	ruleOnce    = "one success a run id"
	ruleSkip    = "a skip has a holder"
	ruleDone    = "done was done"
	ruleUnknown = "69 has a cause"
	ruleLost    = "79 has a cause"
	ruleCode    = "exit codes fit"
	ruleGone    = "no process is left over"
	ruleSlot    = "slots are within their number"
)

// meet judges one overlap, once.
func (k *checker) meet(older, newer *run, until time.Duration, how string) {
	pair := [2]int{older.N, newer.N}
	if _, known := k.met[pair]; known {
		return
	}
	why := k.excuse(older, newer, until)
	k.met[pair] = why
	if why == "" {
		from := newer.Job.Start
		k.wrong(ruleOverlap, fmt.Sprintf("on %s slot %s for %v, %s; tokens %d and %d; the machine was late by %v", newer.Plan.Key, newer.Job.Slot,
			until-from, how, older.Job.Token, newer.Job.Token, k.lateAround(from)), older, newer)
	}
}

func (k *checker) lateAround(at time.Duration) time.Duration {
	if k.late == nil {
		return 0
	}
	return k.late.most(at-time.Second, at+time.Second)
}

// excuse tells what the contract allows for; "" where it does not.
//
// Nobody can help a tree that was frozen as a whole, together with its guard, until it goes on. A store that forgets, or is
// made to, tells a holder at its next beat. And a machine that does not let a guard run for longer than the margin between
// KILL and the end of a lease is, for that long, one that is frozen: such overlaps are counted apart, and told.
func (k *checker) excuse(older, newer *run, until time.Duration) string {
	for _, r := range []*run{older, newer} {
		for _, a := range r.Acts {
			if a.Kind == freezeTree && a.From <= newer.Job.Start && until <= cmp.Or(a.To, k.now)+killBound+k.slack {
				return "frozen as a whole"
			}
		}
	}
	for _, w := range k.windows {
		told := cmp.Or(w.To, k.now) + older.Plan.TTL/2 + killBound + k.slack
		if w.forgot(older.Plan.Key) && older.Began <= cmp.Or(w.To, k.now) && w.From <= newer.Job.Start && until <= told {
			return w.Fault
		}
	}
	if late := k.lateAround(newer.Job.Start); late > margin(older.Plan.TTL) && until-newer.Job.Start <= 2*late {
		return machineLate
	}
	return ""
}

// machineLate is the excuse of a machine that had no time for a guard.
const machineLate = "the machine was late"

// margin is what lockrun keeps free between KILL and the end of a lease, as docs/design.md has it.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 20*time.Millisecond), time.Second)
}

// forgot tells whether what the store knew of a key may have been lost.
func (w *window) forgot(key string) bool { return w.Forgets && (w.Key == "" || w.Key == key) }

// excused tells whether a run is part of an overlap that is allowed for.
func (k *checker) excused(r *run) bool {
	for pair, why := range k.met {
		if why != "" && (pair[0] == r.N || pair[1] == r.N) {
			return true
		}
	}
	return false
}

// tokens rise from grant to grant, and so, as nobody overlaps, from start to start.
func (k *checker) tokens(rs []*run) {
	var most *run
	for _, r := range rs {
		if r.Job.Token <= 0 {
			k.wrong(ruleToken, fmt.Sprintf("token %d", r.Job.Token), r)
		}
		if most != nil && r.Job.Token <= most.Job.Token && !k.forgotTokens(most, r) && k.excuse(most, r, r.Job.Start) == "" && !k.overtaken(r, rs) {
			k.wrong(ruleToken, fmt.Sprintf("on %s slot %s: %d after %d", r.Plan.Key, r.Job.Slot, r.Job.Token, most.Job.Token), most, r)
		}
		if most == nil || r.Job.Token > most.Job.Token || k.forgotTokens(most, r) {
			most = r
		}
	}
}

// forgotTokens tells whether the store lost its counters between two starts.
func (k *checker) forgotTokens(before, after *run) bool {
	return slices.ContainsFunc(k.windows, func(w window) bool {
		return w.Tokens && w.From <= after.Job.Start && before.Began <= cmp.Or(w.To, k.now)
	})
}

// reset tells whether the counters began anew before a run, so that a receiver knows greater tokens of an earlier life.
func (k *checker) reset(r *run) bool {
	return slices.ContainsFunc(k.windows, func(w window) bool { return w.Tokens && w.From <= r.Job.Start })
}

// overtaken tells whether a run whose lease the store forgot began its job only after that of a later grant had begun. They
// need not have met for the fence to have to refuse it.
func (k *checker) overtaken(r *run, rs []*run) bool {
	return slices.ContainsFunc(rs, func(newer *run) bool {
		return newer.Job.Token > r.Job.Token && newer.Job.Start <= r.Job.Start && k.excuse(r, newer, r.last()) != ""
	})
}

// unique finds tokens that were handed out twice, in different slots too.
func (k *checker) unique() {
	type grant struct {
		key   string
		token int64
	}
	seen := map[grant]*run{}
	for _, r := range k.runs {
		if r.Job == nil {
			continue
		}
		at := grant{r.Plan.Key, r.Job.Token}
		if first := seen[at]; first != nil && !k.forgotTokens(first, r) {
			k.wrong(ruleToken, fmt.Sprintf("%d twice on %s", at.token, at.key), first, r)
		}
		seen[at] = r
	}
}

// updates finds writes that took back what another had written, and reads that miss what had been written.
func (k *checker) updates(rs []*run) {
	var writes []*run
	for _, r := range rs {
		if r.Job.Wrote > 0 {
			writes = append(writes, r)
		}
		if r.Job.Fence == "refused" && !k.excused(r) && !k.reset(r) && !k.overtaken(r, rs) {
			k.wrong(ruleFence, fmt.Sprintf("token %d on %s", r.Job.Token, r.Plan.Key), r)
		}
	}
	slices.SortFunc(writes, func(a, b *run) int { return cmp.Compare(a.Job.WroteAt, b.Job.WroteAt) })
	var last *run
	for _, w := range writes {
		if last != nil && last.Job.WroteAt > w.Job.ReadAt && !k.excused(w) && !k.excused(last) {
			k.wrong(ruleUpdate, fmt.Sprintf("on %s: %d was written between a read of %d and a write of %d", w.Plan.Key, last.Job.Wrote, w.Job.Read, w.Job.Wrote), last, w)
		}
		if last != nil && last.Job.WroteAt <= w.Job.ReadAt && w.Job.Read < last.Job.Wrote && !k.spoiled(w, last) {
			k.wrong(ruleUpdate, fmt.Sprintf("on %s: read %d, after %d was written", w.Plan.Key, w.Job.Read, last.Job.Wrote), last, w)
		}
		last = w
	}
}

// spoiled tells whether what a run read was written by one that is excused, or lies behind one.
func (k *checker) spoiled(r, last *run) bool {
	by := k.byN[r.Job.Writer]
	return k.excused(last) || by != nil && k.excused(by)
}

// successes of one run id: one, unless its mark was lost.
func (k *checker) successes(rs []*run) {
	var first *run
	slices.SortFunc(rs, func(a, b *run) int { return cmp.Compare(a.Began, b.Began) })
	for _, r := range rs {
		if r.Code != 0 || r.Ended == 0 || r.Stderr != "" {
			continue // a warning says that the mark may be missing
		}
		if first != nil && !k.forgotBetween(first, r) {
			k.wrong(ruleOnce, fmt.Sprintf("%q succeeded twice", r.Plan.RunID), first, r)
		}
		first = r
	}
	done := slices.ContainsFunc(rs, func(r *run) bool { return r.Job != nil && r.Job.Done > 0 && r.Job.Code == 0 })
	for _, r := range rs {
		if r.Code == codeDone && r.Ended > 0 && !done {
			k.wrong(ruleDone, fmt.Sprintf("%q was said to be done", r.Plan.RunID), r)
		}
	}
}

func (k *checker) forgotBetween(a, b *run) bool {
	return slices.ContainsFunc(k.windows, func(w window) bool {
		return (w.forgot(b.Plan.Key) || w.Marks) && a.Began <= cmp.Or(w.To, k.now) && w.From <= cmp.Or(b.Ended, k.now)
	})
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func contains(s, part string) bool { return strings.Contains(s, part) }
