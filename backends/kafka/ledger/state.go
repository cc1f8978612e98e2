package ledger

import (
	"encoding/json"
	"slices"

	"github.com/lockrun/lockrun/backends"
)

// State is all that is known of one key after one of its records. It is a function of the key's records up to there and of
// nothing else. The zero value is a key without records.
type State struct {
	Time   int64   `json:"time_ms"`          // of the key's last record; it does not fall within an epoch
	Epoch  int32   `json:"epoch"`            // of that record
	Token  int64   `json:"token,omitempty"`  // the last one granted
	Starts int     `json:"starts,omitempty"` // without a run id, since the last success
	Pause  *Paused `json:"pause,omitempty"`
	Leases []Lease `json:"leases,omitempty"` // by slot: live, kept by a minimum hold, or run out and not taken since
	Runs   []Run   `json:"runs,omitempty"`   // the last run ids, the one that was touched last at the end

	// Dropped is above the offset of the last record that touched any of the run ids that are no longer in Runs. See Past.
	Dropped int64 `json:"dropped,omitempty"`

	Gone []Gone `json:"gone,omitempty"` // owners of whom a LOCK may still arrive
}

// Lease is one slot.
type Lease struct {
	Slot     int    `json:"slot"`
	Token    int64  `json:"token"`
	Owner    string `json:"owner"`
	Holder   string `json:"holder,omitempty"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	RunID    string `json:"run_id,omitempty"`
	Attempt  int    `json:"attempt"`
	TTL      int64  `json:"ttl_ms"`
	At       int64  `json:"at_ms"`
	Renewed  int64  `json:"renewed_ms"`
	Expires  int64  `json:"expires_ms"`
	Hold     int64  `json:"hold_until_ms,omitempty"`
	Waited   int64  `json:"waited_us,omitempty"`
	Loose    bool   `json:"loose,omitempty"`
	Takeover bool   `json:"takeover,omitempty"`
	Released bool   `json:"released,omitempty"` // only the minimum hold keeps the slot

	// Writer and N are of the owner's last LOCK: an ABANDON that its writer sent before is not about that.
	Writer string `json:"writer,omitempty"`
	N      int64  `json:"n,omitempty"`
}

// Run is what is known of a run id.
type Run struct {
	ID       string `json:"id"`
	Attempts int    `json:"attempts,omitempty"`
	At       int64  `json:"at_ms"`
	Done     bool   `json:"done,omitempty"` // it succeeded at At
	Offset   int64  `json:"offset"`         // of the last record that changed any of this
}

// Paused is an operator's hold.
type Paused struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at_ms"`
	Until  int64  `json:"until_ms,omitempty"` // 0: until resumed
}

// Gone voids what a writer appended before N for an owner.
type Gone struct {
	Owner  string `json:"owner"`
	Writer string `json:"writer"`
	N      int64  `json:"n"`
}

const (
	// maxRuns bounds how many run ids of a key are in its state, since every record of the key repeats them. Those of live
	// leases always are; of others who asks for one finds out beforehand. See Past.
	maxRuns = 8

	// maxGone bounds the owners of whom a late LOCK is expected. There is one only after an append without a reply.
	maxGone = 8

	// MaxSkew is by how many ms brokers' clocks may differ at a change of the leader. A lease that was live at its key's
	// last record counts as live under the new leader, whose clock is another, unless it had run out longer ago than this.
	MaxSkew = 10 * 60 * 1000
)

// Live tells whether the lease is held at t.
func (l *Lease) Live(t int64) bool { return !l.Released && t < l.Expires }

// Taken tells whether the slot is taken at t, be it by a minimum hold.
func (l *Lease) Taken(t int64) bool { return l.Live(t) || t < l.Hold }

// Until is when the slot will be free unless somebody renews.
func (l *Lease) Until(t int64) int64 {
	if l.Live(t) && l.Expires > l.Hold {
		return l.Expires
	}
	return l.Hold
}

// Holds tells whether the pause is in force at t.
func (p *Paused) Holds(t int64) bool { return p != nil && (p.Until == 0 || t < p.Until) }

// Known tells whether the key has any record.
func (s *State) Known() bool { return s != nil && s.Time > 0 }

// Clone is a copy that shares nothing which Apply changes.
func (s *State) Clone() *State {
	c := *s
	c.Leases, c.Runs, c.Gone = slices.Clone(s.Leases), slices.Clone(s.Runs), slices.Clone(s.Gone)
	return &c
}

// Text is a form in which equal states are equal strings.
func (s *State) Text() string {
	if s == nil {
		s = &State{}
	}
	b, _ := json.Marshal(s) // of numbers, strings and lists of them: it cannot fail
	return string(b)
}

// Owned is the lease of owner that has not been given back, run out or not.
func (s *State) Owned(owner string) *Lease {
	i := slices.IndexFunc(s.Leases, func(l Lease) bool { return l.Owner == owner && !l.Released })
	if i < 0 {
		return nil
	}
	return &s.Leases[i]
}

// ByToken finds a lease by its token, in whatever condition.
func (s *State) ByToken(token int64) *Lease {
	i := slices.IndexFunc(s.Leases, func(l Lease) bool { return l.Token == token })
	if i < 0 {
		return nil
	}
	return &s.Leases[i]
}

func (s *State) run(id string) *Run {
	i := slices.IndexFunc(s.Runs, func(r Run) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Runs[i]
}

// touch brings a run id to the end of those in the state, making it known.
func (s *State) touch(id string, r Record, t int64) *Run {
	run := Run{ID: id}
	if old := s.run(id); old != nil {
		run = *old
		s.Runs = slices.DeleteFunc(s.Runs, func(o Run) bool { return o.ID == id })
	}
	run.At, run.Offset = t, r.Offset
	return s.keep(run)
}

// keep adds a run id at the end and drops the surplus.
func (s *State) keep(run Run) *Run {
	s.Runs = append(s.Runs, run)
	for i := 0; len(s.Runs) > maxRuns && i < len(s.Runs)-1; {
		if s.running(s.Runs[i].ID) {
			i++
			continue
		}
		s.Dropped = max(s.Dropped, s.Runs[i].Offset+1)
		s.Runs = slices.Delete(s.Runs, i, i+1)
	}
	return &s.Runs[len(s.Runs)-1]
}

func (s *State) running(id string) bool {
	return slices.ContainsFunc(s.Leases, func(l Lease) bool { return l.RunID == id && !l.Released })
}

// forget drops what the writer of e no longer keeps.
func (s *State) forget(e *Entry, t int64) {
	oldest := t - e.doneAge()
	s.Runs = slices.DeleteFunc(s.Runs, func(r Run) bool {
		old := r.At < oldest && !s.running(r.ID)
		if old { // others may keep it for longer
			s.Dropped = max(s.Dropped, r.Offset+1)
		}
		return old
	})
	s.Leases = slices.DeleteFunc(s.Leases, func(l Lease) bool { return l.Released && t >= l.Hold })
}

// doneAge is how long the writer keeps done-marks, in ms.
func (e *Entry) doneAge() int64 {
	if e.DoneAge == 0 {
		return backends.DefaultKeep.DoneAge.Milliseconds()
	}
	return e.DoneAge
}

// sound tells whether the state is one that Apply could have left.
func (s *State) sound() bool {
	if s == nil {
		return true
	}
	ok := func(n int64) bool { return n >= 0 && n < maxAmount }
	if !ok(s.Time) || !ok(s.Token) || !ok(s.Dropped) || !ok(int64(s.Starts)) || s.Pause != nil && (!ok(s.Pause.At) || !ok(s.Pause.Until)) {
		return false
	}
	for i, l := range s.Leases {
		if i > 0 && l.Slot <= s.Leases[i-1].Slot || !ok(int64(l.Slot)) || !ok(l.Token) || !ok(l.TTL) || !ok(l.At) || !ok(l.Renewed) || !ok(l.Expires) || !ok(l.Hold) || !ok(l.N) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Runs, func(r Run) bool { return !ok(int64(r.Attempts)) || !ok(r.At) || !ok(r.Offset) })
}
