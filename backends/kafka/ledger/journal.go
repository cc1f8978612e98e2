package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Journal makes run records of the records of a partition, which it has to be given from the beginning of the log on.
type Journal struct {
	store    string // its name, for the records
	accounts map[string]*account
}

// account is what the journal has of one key.
type account struct {
	state         State
	runs, refused []backends.Record // oldest first
	tokens        map[int64]bool    // of runs
}

// NewJournal begins a journal that calls the store so.
func NewJournal(store string) *Journal {
	return &Journal{store: store, accounts: map[string]*account{}}
}

// Add replays a line and returns the run records that it wrote or completed. The lines of a key have to come in order.
func (j *Journal) Add(l Line) []backends.Record {
	e := l.Entry
	if e == nil {
		return nil
	}
	a := j.accounts[e.Key]
	if a == nil {
		a = &account{tokens: map[int64]bool{}}
		if c, err := DecodeCarry(l.Record); err == nil && c.State != nil {
			a.state = *c.State.Clone()
		}
		j.accounts[e.Key] = a
	}
	return j.enter(a, e, a.state.Apply(l.Record, e))
}

// enter writes down what a record did.
func (j *Journal) enter(a *account, e *Entry, res Result) []backends.Record {
	at := Instant(res.Time)
	var new []backends.Record
	add := func(r backends.Record) {
		r.Backend = cmp.Or(r.Backend, j.store)
		new = append(new, a.add(r, e, at))
	}
	switch res.Did {
	case Granted:
		if c := res.Crashed; c != nil && !a.tokens[c.Token] {
			add(c.crashed(e.Key, res.Time))
		}
	case Refused:
		if e.Last {
			add(e.request().Refused(res.Err, at))
		}
	case Ended:
		r, took := res.Lease.record(e.Key), time.Duration(e.Duration)*time.Microsecond
		r.Outcome, r.ExitCode, r.Duration, r.Reason, r.EndedAt = e.Outcome, e.ExitCode, &took, e.Reason, at
		add(r)
	case Broken:
		for _, l := range res.Broken {
			if !a.tokens[l.Token] {
				r := l.record(e.Key)
				r.Outcome, r.Reason, r.EndedAt = backends.Unlocked, e.By, at
				add(r)
			}
		}
	case Noted:
		r := *e.Record
		r.Key = e.Key
		if r.StartedAt.IsZero() {
			r.StartedAt = at
		}
		if r.EndedAt.IsZero() {
			r.EndedAt = at
		}
		if res.Has && !a.tokens[r.Token] {
			r = backends.Complete(res.Lease.crashed(e.Key, res.Time), r)
		}
		add(r)
	}
	return new
}

// add writes a record, or completes the one of the same token, and drops what the writer of e does not keep.
func (a *account) add(r backends.Record, e *Entry, at time.Time) backends.Record {
	list := &a.runs
	if r.Outcome.Refusal() {
		list = &a.refused
	}
	i := -1
	if r.Token != 0 && a.tokens[r.Token] {
		i = slices.IndexFunc(*list, func(o backends.Record) bool { return o.Token == r.Token })
	}
	if i >= 0 {
		r = backends.Complete((*list)[i], r)
		(*list)[i] = r
	} else {
		*list = append(*list, r)
		if r.Token != 0 {
			a.tokens[r.Token] = true
		}
	}
	a.trim(list, e.Keep(), at)
	return r
}

func (a *account) trim(list *[]backends.Record, k backends.Keep, at time.Time) {
	surplus := len(*list) - k.Runs
	kept := (*list)[:0]
	for i, r := range *list {
		if i < surplus || r.EndedAt.Before(at.Add(-k.Age)) {
			delete(a.tokens, r.Token)
			continue
		}
		kept = append(kept, r)
	}
	clear((*list)[len(kept):])
	*list = kept
}

// Keep is what the writer of the record keeps of the history.
func (e *Entry) Keep() backends.Keep {
	k := backends.Options{Keep: backends.Keep{Runs: e.KeepRuns, Age: Length(e.KeepAge), DoneAge: Length(e.DoneAge)}}
	return k.WithDefaults().Keep
}

// Records are all run records of the journal, newest first, as they are at now under the leader of that epoch: what has run
// out by then and was not taken since has crashed. keep bounds them further.
func (j *Journal) Records(now int64, epoch int32, keep backends.Keep) []backends.Record {
	var all []backends.Record
	for key, a := range j.accounts {
		runs := slices.Clone(a.runs)
		for _, l := range a.runOut(now, epoch) {
			r := l.crashed(key, now)
			r.Backend = j.store
			runs = append(runs, r)
		}
		for _, list := range [][]backends.Record{runs, a.refused} {
			slices.SortStableFunc(list, func(x, y backends.Record) int { return x.EndedAt.Compare(y.EndedAt) })
			list = list[max(0, len(list)-keep.Runs):]
			oldest := Instant(now).Add(-keep.Age)
			all = append(all, slices.DeleteFunc(slices.Clone(list), func(r backends.Record) bool { return r.EndedAt.Before(oldest) })...)
		}
	}
	slices.Reverse(all)
	slices.SortStableFunc(all, func(x, y backends.Record) int {
		return cmp.Or(y.EndedAt.Compare(x.EndedAt), cmp.Compare(y.Token, x.Token))
	})
	return all
}

// runOut are leases that have run out and that no record tells of yet.
func (a *account) runOut(now int64, epoch int32) []Lease {
	var all []Lease
	for _, l := range a.state.AsOf(now, epoch).Leases {
		if !l.Released && !l.Live(now) && !a.tokens[l.Token] {
			all = append(all, l)
		}
	}
	return all
}

// Overdue tells whether a lease would be Due had the leader not changed.
func (j *Journal) Overdue(now int64) bool {
	for _, a := range j.accounts {
		if len(a.runOut(now, a.state.Epoch)) > 0 {
			return true
		}
	}
	return false
}

// Due are leases that have run out at now under the leader of that epoch and that no record tells of yet, as crashed runs;
// each is returned once.
func (j *Journal) Due(now int64, epoch int32) []backends.Record {
	var all []backends.Record
	for key, a := range j.accounts {
		for _, l := range a.runOut(now, epoch) {
			r := l.crashed(key, now)
			r.Backend = j.store
			a.runs = append(a.runs, r)
			a.tokens[l.Token] = true
			all = append(all, r)
		}
	}
	return all
}

// record is what is known of a lease's run before it has ended.
func (l *Lease) record(key string) backends.Record {
	slot := l.Slot
	return backends.Record{Key: key, RunID: l.RunID, Attempt: l.Attempt, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token,
		Slot: &slot, StartedAt: Instant(l.At), Waited: time.Duration(l.Waited) * time.Microsecond}
}

// crashed is the record of a lease that ran out without a release.
func (l *Lease) crashed(key string, t int64) backends.Record {
	r := l.record(key)
	r.Outcome, r.EndedAt = backends.Crashed, Instant(min(l.Expires, t))
	return r
}

// request is what a LOCK asked for.
func (e *Entry) request() backends.Request {
	return backends.Request{Key: e.Key, RunID: e.RunID, Holder: e.Holder, Host: e.Host, PID: e.PID,
		Waited: time.Duration(e.Waited) * time.Microsecond}
}
