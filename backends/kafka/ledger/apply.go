package ledger

import (
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Did is what came of a record.
type Did int

// What may come of a record.
const (
	Nothing    Did = iota // it had no effect: not, or no longer, its lease; nothing to end; void
	Granted               // LOCK: the lease is the owner's
	Refused               // LOCK: Err says why
	Renewed               // HEARTBEAT
	Ended                 // RELEASE: the run is over
	Undone                // ABANDON: the lease is gone without a trace
	Broken                // BREAK
	PauseSet              // PAUSE
	PauseEnded            // RESUME
	Noted                 // NOTE
	Stale                 // LOCK: nothing, since its writer knew too little of its run id; to be asked again
)

// Result is what a record did.
type Result struct {
	Did     Did
	Time    int64   // when, as the rules count it
	Lease   Lease   // Granted, Renewed, Ended: the lease; Noted: the one with the record's token, if HasLease
	Has     bool    // Noted: Lease is set
	Err     error   // Refused: *backends.HeldError or *backends.DoneError
	Crashed *Lease  // Granted: the lease before in that slot ran out without a release
	Broken  []Lease // Broken: as they were
}

// Apply replays one record of the key. Records have to come in the order of their offsets, each once.
func (s *State) Apply(r Record, e *Entry) Result {
	t := s.tick(r)
	res := Result{Time: t}
	switch e.Kind {
	case Lock:
		s.lock(r, e, t, &res)
	case Heartbeat:
		if l := s.mine(e); l != nil && l.Live(t) {
			l.Renewed, l.Expires, l.TTL = t, t+e.TTL, e.TTL
			res.Did, res.Lease = Renewed, *l
		}
	case Release:
		if l := s.mine(e); l != nil && l.Live(t) {
			res.Did, res.Lease = Ended, *l
			s.end(l, r, e, t)
		}
		s.leave(e)
	case Abandon:
		if l := s.Owned(e.Owner); l != nil && !l.askedAfter(e) {
			res.Did, res.Lease = Undone, *l
			s.undo(*l, r)
		}
		s.leave(e)
	case Break:
		s.broken(e, t, &res)
	case Pause:
		s.Pause = &Paused{By: e.By, Reason: e.Reason, At: t}
		if e.For > 0 {
			s.Pause.Until = t + e.For
		}
		res.Did = PauseSet
	case Resume:
		if s.Pause.Holds(t) {
			res.Did = PauseEnded
		}
		s.Pause = nil
	case Note:
		res.Did = Noted
		if l := s.ByToken(e.Record.Token); l != nil && e.Record.Token != 0 {
			res.Lease, res.Has = *l, true
		}
	}
	return res
}

// tick is the time at which a record counts.
//
// Within an epoch there is one clock, that of the leader; where it is set back, time stands still until it has caught up.
// The next leader has another clock, which nothing can be compared with. So what was live under the old one begins its
// time again under the new one: its holder has counted from an earlier moment.
func (s *State) tick(r Record) int64 {
	t := r.Time
	switch {
	case !s.Known():
	case r.Epoch == s.Epoch:
		t = max(t, s.Time)
	default:
		for i := range s.Leases {
			l := &s.Leases[i]
			if l.Expires <= s.Time || t > l.Expires+MaxSkew {
				l.Expires = min(l.Expires, t) // had run out, and stays so where the new clock is behind
			} else if !l.Released {
				l.Expires = t + l.TTL
			}
		}
	}
	s.Time, s.Epoch = t, r.Epoch
	return t
}

// AsOf is the state as a record would find it that is appended at t under the leader of that epoch: what has not been begun
// anew under a new leader will be. It is the state itself where there is no new leader.
func (s *State) AsOf(t int64, epoch int32) *State {
	if !s.Known() || epoch <= s.Epoch {
		return s
	}
	c := s.Clone()
	c.tick(Record{Time: t, Epoch: epoch})
	return c
}

// mine is the lease that a HEARTBEAT or RELEASE is about.
func (s *State) mine(e *Entry) *Lease {
	if l := s.Owned(e.Owner); l != nil && l.Token == e.Token {
		return l
	}
	return nil
}

func (s *State) lock(r Record, e *Entry, t int64, res *Result) {
	if s.void(e) {
		return
	}
	if l := s.Owned(e.Owner); l != nil {
		if l.Live(t) { // a repetition
			l.Renewed, l.Expires, l.TTL = t, t+e.TTL, e.TTL
			if !l.askedAfter(e) {
				l.Writer, l.N = e.Writer, e.N
			}
			res.Did, res.Lease = Granted, *l
			return
		}
		// It has run out before its owner heard of it. Since then another may have taken up the same run, in another slot,
		// and be at it still, or have brought it to its end.
		s.undo(*l, r)
	}
	if !s.recall(r, e, t) {
		res.Did = Stale
		return
	}
	if err := s.Refuse(e, t); err != nil {
		res.Did, res.Err = Refused, err
		return
	}
	s.forget(e, t)
	s.grant(r, e, t, res)
}

// askedAfter tells whether the owner has asked for the lease after it sent e. Requests may overtake each other on their way.
func (l *Lease) askedAfter(e *Entry) bool { return l.Writer == e.Writer && e.N < l.N }

// Refuse tells why a LOCK would not be granted at t, with *backends.DoneError or *backends.HeldError; nil: it would. Done
// comes before held, since a run that is done need not wait; held before paused, as status has it.
func (s *State) Refuse(e *Entry, t int64) error {
	if r := s.run(e.RunID); e.RunID != "" && r != nil && r.Done {
		return &backends.DoneError{Key: e.Key, RunID: e.RunID, At: Instant(r.At)}
	}
	var first *Lease // of the taken slots, the one that will be free first
	taken := 0
	for i := range s.Leases {
		l := &s.Leases[i]
		if e.RunID != "" && l.RunID == e.RunID && l.Live(t) {
			return l.Held(e.Key, backends.SameRun, l.Expires, t)
		}
		if l.Taken(t) {
			if taken++; first == nil || l.Until(t) < first.Until(t) {
				first = l
			}
		}
	}
	if taken >= e.Slots {
		reason := ""
		if !first.Live(t) {
			reason = backends.MinimumHold
		}
		return first.Held(e.Key, reason, first.Until(t), t)
	}
	if s.Pause.Holds(t) {
		return s.Pause.Held(e.Key, t)
	}
	return nil
}

// Held says that the lease stands in the way.
func (l *Lease) Held(key, reason string, until, t int64) *backends.HeldError {
	return &backends.HeldError{Key: key, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token,
		Since: Instant(l.At), Until: Instant(until), Left: Length(until - t), Reason: reason}
}

// Held says that the pause stands in the way.
func (p *Paused) Held(key string, t int64) *backends.HeldError {
	h := &backends.HeldError{Key: key, Holder: p.By, Since: Instant(p.At), Paused: true, Reason: p.Reason}
	if p.Until != 0 {
		h.Until, h.Left = Instant(p.Until), Length(p.Until-t)
	}
	return h
}

// grant fills the lowest slot that is not taken.
func (s *State) grant(r Record, e *Entry, t int64, res *Result) {
	slot, at := 0, 0
	for at < len(s.Leases) && s.Leases[at].Slot == slot && s.Leases[at].Taken(t) {
		slot++
		at++
	}
	l := Lease{Slot: slot, Owner: e.Owner, Holder: e.Holder, Host: e.Host, PID: e.PID, RunID: e.RunID, TTL: e.TTL,
		At: t, Renewed: t, Expires: t + e.TTL, Waited: e.Waited, Loose: e.Loose, Writer: e.Writer, N: e.N}
	if e.Hold > 0 {
		l.Hold = t + e.Hold
	}
	// A token told by another store is kept where it can be. Our own is the time: unlike offsets it goes on where the log's
	// end was lost, and in a topic that is made again.
	own := t
	if e.Token > 0 {
		own = e.Token
	}
	l.Token = max(s.Token+1, own)
	if at < len(s.Leases) && s.Leases[at].Slot == slot {
		if old := s.Leases[at]; !old.Released {
			l.Takeover, res.Crashed = true, &old
		}
		s.Leases = slices.Delete(s.Leases, at, at+1)
	}
	s.Token = l.Token
	l.Attempt = s.start(e.RunID, r, t)
	s.Leases = slices.Insert(s.Leases, at, l)
	res.Did, res.Lease = Granted, l
}

// start counts one more attempt.
func (s *State) start(id string, r Record, t int64) int {
	if id == "" {
		s.Starts++
		return s.Starts
	}
	run := s.touch(id, r, t)
	run.Attempts++
	return run.Attempts
}

// end frees the slot, or leaves it to the minimum hold, marks the run and counts.
func (s *State) end(l *Lease, r Record, e *Entry, t int64) {
	id := l.RunID
	if e.Outcome == backends.NotStarted {
		s.undo(*l, r)
	} else if l.Released = true; t >= l.Hold {
		s.drop(l.Token)
	}
	if e.Outcome == backends.Succeeded {
		s.Starts = 0
		if id != "" {
			s.touch(id, r, t).Done = true
		}
	}
	s.forget(e, t)
}

// undo takes a lease away as if it had not been: it was no attempt. Its token stays used up.
func (s *State) undo(l Lease, r Record) {
	s.drop(l.Token)
	if l.RunID == "" {
		s.Starts = max(0, s.Starts-1)
	} else if run := s.run(l.RunID); run != nil {
		run.Attempts, run.Offset = max(0, run.Attempts-1), r.Offset
	}
}

func (s *State) drop(token int64) {
	s.Leases = slices.DeleteFunc(s.Leases, func(l Lease) bool { return l.Token == token })
}

// leave remembers that LOCKs of the owner which were sent before are void, where one may still be on its way.
func (s *State) leave(e *Entry) {
	if !e.Unsure {
		return
	}
	if s.void(e) {
		return // it has been overtaken by one that says more
	}
	s.Gone = slices.DeleteFunc(s.Gone, func(g Gone) bool { return g.Owner == e.Owner })
	s.Gone = append(s.Gone, Gone{Owner: e.Owner, Writer: e.Writer, N: e.N})
	if n := len(s.Gone) - maxGone; n > 0 {
		s.Gone = slices.Delete(s.Gone, 0, n)
	}
}

func (s *State) void(e *Entry) bool {
	return slices.ContainsFunc(s.Gone, func(g Gone) bool { return g.Owner == e.Owner && g.Writer == e.Writer && e.N < g.N })
}

func (s *State) broken(e *Entry, t int64, res *Result) {
	for _, l := range s.Leases {
		if l.Taken(t) && (e.Token == 0 || l.Token == e.Token) {
			res.Broken = append(res.Broken, l)
		}
	}
	if res.Broken != nil {
		res.Did = Broken
	}
	for _, l := range res.Broken {
		s.drop(l.Token)
	}
}

// Instant is a broker's time.
func Instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// Length is a duration counted in ms.
func Length(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
