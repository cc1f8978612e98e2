package zookeeper

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// format is the version of what is written. A later one that earlier programs would misread gets another number.
const format = 1

// state is what a key's node holds. Each change replaces it under its version, in one transaction with everything that
// belongs to the change, so that what one has read is what one changes.
//
// Times are microseconds since 1970 by the servers' clock; durations are microseconds.
type state struct {
	Format int    `json:"lockrun"`
	Key    string `json:"key"`
	Write  string `json:"write"` // random, of whoever wrote last: tells a write whose answer was lost
	Token  int64  `json:"token"` // the last one handed out
	Starts int    `json:"starts,omitempty"`
	At     int64  `json:"at"` // of the last change, or before it
	Pause  *pause `json:"pause,omitempty"`
	Slots  []slot `json:"slots,omitempty"` // ascending
	First  int64  `json:"first"`           // run records First to Next-1 are there
	Next   int64  `json:"next"`
	Marks  []mark `json:"marks,omitempty"`
}

type pause struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at"`
	Until  int64  `json:"until,omitempty"` // 0: until resumed
}

// slot is a lease, or what is left of one: kept by its minimum hold, or run out and not taken since.
type slot struct {
	Slot     int    `json:"slot"`
	Owner    string `json:"owner"`
	Holder   string `json:"holder"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	RunID    string `json:"run_id,omitempty"`
	Token    int64  `json:"token"`
	Attempt  int    `json:"attempt"`
	At       int64  `json:"at,omitempty"` // granted; 0: by the write that made the state what it is
	TTL      int64  `json:"ttl"`
	Hold     int64  `json:"hold,omitempty"` // instant until which the slot stays taken whatever happens
	Waited   int64  `json:"waited,omitempty"`
	Takeover bool   `json:"takeover,omitempty"`
	Loose    bool   `json:"loose,omitempty"`
	Released bool   `json:"released,omitempty"`
	Recorded bool   `json:"recorded,omitempty"` // the run's record has been written
}

// mark says that the records before N were written by At. It finds those that are too old without looking at each.
type mark struct {
	N  int64 `json:"n"`
	At int64 `json:"at"`
}

// runID is what the node of a run id holds.
type runID struct {
	Format   int    `json:"lockrun"`
	ID       string `json:"id"`
	Attempts int    `json:"attempts"`
	At       int64  `json:"at"`
	Done     int64  `json:"done,omitempty"` // 0 until it has succeeded
}

func micros(t time.Time) int64       { return t.UnixMicro() }
func instant(us int64) time.Time     { return time.UnixMicro(us).UTC() }
func length(us int64) time.Duration  { return time.Duration(us) * time.Microsecond }
func inMicros(d time.Duration) int64 { return d.Microseconds() }
func pointer[T any](v T) *T          { return &v }
func (s *state) slotOf(number int) *slot {
	return s.find(func(l *slot) bool { return l.Slot == number })
}

// owned is the lease that owner has not given back, live or not.
func (s *state) owned(owner string) *slot {
	return s.find(func(l *slot) bool { return l.Owner == owner && !l.Released })
}

func (s *state) find(is func(*slot) bool) *slot {
	for i := range s.Slots {
		if is(&s.Slots[i]) {
			return &s.Slots[i]
		}
	}
	return nil
}

// put fills a slot; drop frees it.
func (s *state) put(l slot) {
	s.drop(l.Slot)
	i := slices.IndexFunc(s.Slots, func(o slot) bool { return o.Slot > l.Slot })
	if i < 0 {
		i = len(s.Slots)
	}
	s.Slots = slices.Insert(s.Slots, i, l)
}

func (s *state) drop(number int) {
	s.Slots = slices.DeleteFunc(s.Slots, func(l slot) bool { return l.Slot == number })
}

// parseState reads a key's node. What is not lockrun's, or of a format that this version does not know, is an error.
func parseState(data []byte, key string) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(data, s); err != nil || s.Format == 0 || s.Key != key {
		return nil, errForeign
	}
	if s.Format > format {
		return nil, errNewer
	}
	return s, nil
}

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // nothing in these types can fail
	}
	return b
}

// view is a key as it was at one moment: its state, whose sessions lived, and what time it was.
type view struct {
	key       string
	path      string
	s         state
	version   int32
	found     bool // false: the store does not know the key
	current   bool // it is not older than what anybody was told before
	doubtful  bool // an earlier change of the same update, whose answer was lost, may have been made
	zxid      int64
	alive     map[string]bool // owners whose lease node is there
	now       time.Time
	id        *runID // of the run id asked for; nil where there is none
	idVersion int32
	gone      map[int64]bool // run records that were found missing
	waiters   int
	renewed   map[string]time.Time // by owner, where it was asked for
}

// settle fills in what the time of a write tells, in ms: a grant may be written without knowing what time it is, since the
// write itself finds out.
func (v *view) settle(mtime int64) {
	v.s.At = max(v.s.At, mtime*1000)
	for i := range v.s.Slots {
		if l := &v.s.Slots[i]; l.At == 0 {
			l.At = v.s.At
		}
	}
}

// readChildren sorts out what stands under a key.
func (v *view) readChildren(names []string) {
	v.alive = map[string]bool{}
	for _, name := range names {
		if owner, ok := strings.CutPrefix(name, leasePrefix); ok {
			v.alive[owner] = true
		}
	}
}

func (v *view) at() int64          { return max(micros(v.now), v.s.At) } // a key's times never go back
func (v *view) live(l *slot) bool  { return !l.Released && v.alive[l.Owner] }
func (v *view) held(l *slot) bool  { return v.at() < l.Hold }
func (v *view) taken(l *slot) bool { return v.live(l) || v.held(l) }
func (v *view) paused() bool {
	return v.s.Pause != nil && (v.s.Pause.Until == 0 || v.at() < v.s.Pause.Until)
}
func (v *view) instant() time.Time  { return instant(v.at()) }
func (v *view) node(l *slot) string { return leasePath(v.path, l.Owner) }

// until is when a slot will be free unless somebody renews. Of a live lease nobody can know: what a session's length after
// the last renewal comes to is the best guess, and never less than nothing.
func (v *view) until(l *slot) int64 {
	if !v.live(l) {
		return l.Hold
	}
	renewed := l.At
	if t, ok := v.renewed[l.Owner]; ok {
		renewed = micros(t)
	}
	return max(min(renewed, v.at())+l.TTL, v.at()+1000, l.Hold)
}

// doneBy is when the run id asked for succeeded; marks that are older than they are kept do not count.
func (v *view) doneBy(age time.Duration) (time.Time, bool) {
	if v.id == nil || v.id.Done == 0 || v.at()-v.id.Done > inMicros(age) {
		return time.Time{}, false
	}
	return instant(v.id.Done), true
}

// refuse is why a request has to be refused: done before held, since a run that is done need not wait; held before
// paused, as Status has it.
func (v *view) refuse(r backends.Request, keep backends.Keep) error {
	if at, done := v.doneBy(keep.DoneAge); r.RunID != "" && done {
		return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: at}
	}
	if held := v.refusal(r); held != nil {
		return held
	}
	return nil
}

// refusal names who stands in the way: who runs the same run id, else of several slots the one that will be free first.
func (v *view) refusal(r backends.Request) *backends.HeldError {
	if l := v.sameRun(r); l != nil {
		return v.heldError(l, backends.SameRun)
	}
	var taken []*slot
	for i := range v.s.Slots {
		if l := &v.s.Slots[i]; v.taken(l) {
			taken = append(taken, l)
		}
	}
	if len(taken) >= r.Slots {
		l := slices.MinFunc(taken, func(a, b *slot) int { return cmp.Compare(v.until(a), v.until(b)) })
		reason := ""
		if !v.live(l) {
			reason = backends.MinimumHold
		}
		return v.heldError(l, reason)
	}
	if v.paused() {
		return v.pausedError()
	}
	return nil
}

// sameRun is the live lease of the run id asked for.
func (v *view) sameRun(r backends.Request) *slot {
	if r.RunID == "" {
		return nil
	}
	return v.s.find(func(l *slot) bool { return l.RunID == r.RunID && l.Owner != r.Owner && v.live(l) })
}

func (v *view) heldError(l *slot, reason string) *backends.HeldError {
	until := v.until(l)
	return &backends.HeldError{Key: v.key, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token,
		Since: instant(l.At), Until: instant(until), Left: length(until - v.at()), Reason: reason}
}

func (v *view) pausedError() *backends.HeldError {
	p := v.s.Pause
	h := &backends.HeldError{Key: v.key, Holder: p.By, Since: instant(p.At), Paused: true, Reason: p.Reason}
	if p.Until != 0 {
		h.Until, h.Left = instant(p.Until), length(p.Until-v.at())
	}
	return h
}

// record is a run's record, as far as the lease tells it.
func (l *slot) record(key, backend string) backends.Record {
	return backends.Record{Key: key, RunID: l.RunID, Attempt: l.Attempt, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token,
		Slot: pointer(l.Slot), StartedAt: instant(l.At), Waited: length(l.Waited), Backend: backend}
}

// crashed is the record of a lease that ran out. When its session ended nobody has written down; it is told as of now.
func (v *view) crashed(l *slot, backend string) backends.Record {
	rec := l.record(v.key, backend)
	rec.Outcome, rec.EndedAt = backends.Crashed, v.instant()
	return rec
}
