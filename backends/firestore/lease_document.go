package firestore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// leaseDocument is what stands in the way of a key's next run: its slots and its pause. It exists only while there is
// something of the kind, which is what makes a free key's condition simple: create it if it is absent.
type leaseDocument struct {
	key     string
	updated string // version; "" where the document is absent
	pause   *pause
	slots   map[int]*slot
	beat    int // the slot that this update renews, or none
	beaten  int // the slot that the last update renewed, or none
}

const none = -1

type pause struct {
	by, reason string
	at, until  time.Time // until is zero: until resumed
}

// slot is one taken slot: held, or kept by its minimum hold, or run out and not taken since.
type slot struct {
	owner, holder, host, run string

	number, pid int
	attempt     int
	token       int64
	acquired    time.Time
	renewed     time.Time
	ttl, hold   time.Duration
	waited      time.Duration
	loose       bool
	takeover    bool
	released    bool // only the minimum hold keeps it
	recorded    bool // the run's record has been written
}

var (
	errForeign = errors.New("is not lockrun's, or a newer lockrun wrote it")
	errCrowded = errors.New("too many hold this key at one time for one document")
)

// foreign says which document is another program's.
func foreign(d *document) error {
	_, path, _ := strings.Cut(d.Name, "/documents/")
	return fmt.Errorf("the document %s %w", path, errForeign)
}

// maxSlots keeps the document below Firestore's limit of 1 MiB: each slot has up to three names of 255 bytes.
const maxSlots = 500

// layout is the version of the documents' layout.
const layout = 1

func (s *slot) expires() time.Time       { return s.renewed.Add(s.ttl) }
func (s *slot) held() time.Time          { return s.acquired.Add(s.hold) }
func (s *slot) live(now time.Time) bool  { return !s.released && now.Before(s.expires()) }
func (s *slot) taken(now time.Time) bool { return s.live(now) || s.hold > 0 && now.Before(s.held()) }
func (p *pause) active(now time.Time) bool {
	return p != nil && (p.until.IsZero() || now.Before(p.until))
}

// until is when the slot will be free unless somebody renews.
func (s *slot) until(now time.Time) time.Time {
	if s.live(now) && s.expires().After(s.held()) {
		return s.expires()
	}
	return s.held()
}

// parseLease reads a lease's document; nil is an absent one.
func parseLease(key string, d *document) (*leaseDocument, error) {
	l := &leaseDocument{key: key, slots: map[int]*slot{}, beat: none, beaten: none}
	if d == nil {
		return l, nil
	}
	if d.Fields.num("layout") != layout || d.Fields.str("key") != key {
		return nil, foreign(d)
	}
	l.updated = d.Updated
	if p := d.Fields.sub("pause"); p != nil {
		l.pause = &pause{by: p.str("by"), reason: p.str("reason"), at: p.time("at"), until: p.time("until")}
	}
	for name, v := range d.Fields.sub("slots") {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "s"))
		if err != nil || v.Map == nil {
			return nil, foreign(d)
		}
		l.slots[n] = parseSlot(n, v.Map.Fields)
	}
	if d.Fields.has("beat") {
		l.beaten = int(d.Fields.num("beat"))
	}
	if s := l.slots[l.beaten]; s != nil { // only the commit's own time tells when that was
		s.renewed = parseTime(d.Updated)
	}
	return l, nil
}

func parseSlot(n int, f fields) *slot {
	return &slot{number: n, owner: f.str("owner"), holder: f.str("holder"), host: f.str("host"), pid: int(f.num("pid")), run: f.str("run_id"),
		attempt: int(f.num("attempt")), token: f.num("token"), acquired: f.time("acquired"), renewed: f.time("renewed"),
		ttl: f.length("ttl_us"), hold: f.length("hold_us"), waited: f.length("waited_us"),
		loose: f.flag("loose"), takeover: f.flag("takeover"), released: f.flag("released"), recorded: f.flag("recorded")}
}

func (s *slot) fields() fields {
	f := fields{"owner": str(s.owner)}
	f.setStr("holder", s.holder)
	f.setStr("host", s.host)
	f.setStr("run_id", s.run)
	f.setNum("pid", int64(s.pid))
	f.setNum("attempt", int64(s.attempt))
	f.setNum("token", s.token)
	f.setTime("acquired", s.acquired)
	f.setTime("renewed", s.renewed)
	f.setLength("ttl_us", s.ttl)
	f.setLength("hold_us", s.hold)
	f.setLength("waited_us", s.waited)
	f.setFlag("loose", s.loose)
	f.setFlag("takeover", s.takeover)
	f.setFlag("released", s.released)
	f.setFlag("recorded", s.recorded)
	return f
}

// fields are the whole document. nonce makes each write change something: one that changes nothing does not move the
// update time, and a condition on that would hold for two writers.
func (l *leaseDocument) fields() fields {
	f := fields{"layout": num(layout), "key": str(l.key), "nonce": str(nonce())}
	slots := fields{}
	for n, s := range l.slots {
		slots["s"+strconv.Itoa(n)] = sub(s.fields())
	}
	f["slots"] = sub(slots)
	if l.beat != none {
		f["beat"] = num(int64(l.beat))
	}
	if p := l.pause; p != nil {
		m := fields{"by": str(p.by)}
		m.setStr("reason", p.reason)
		m.setTime("at", p.at)
		m.setTime("until", p.until)
		f["pause"] = sub(m)
	}
	return f
}

// nonce is random enough to differ from the one before.
func nonce() string { return backends.NewOwner()[:12] }

// owned is the slot that owner has not given back.
func (l *leaseDocument) owned(owner string) *slot {
	for _, s := range l.slots {
		if s.owner == owner && !s.released {
			return s
		}
	}
	return nil
}

// alone tells whether there is nothing but one slot.
func (l *leaseDocument) alone() bool { return len(l.slots) == 1 && l.pause == nil }

func (l *leaseDocument) byToken(token int64) *slot {
	for _, s := range l.slots {
		if s.token == token {
			return s
		}
	}
	return nil
}

// refusal names who stands in the way: who runs the same run id, else of several slots the one that will be free first.
func (l *leaseDocument) refusal(r backends.Request, now time.Time) *backends.HeldError {
	var taken []*slot
	for _, s := range l.slots {
		if r.RunID != "" && s.run == r.RunID && s.live(now) {
			return s.heldError(l.key, backends.SameRun, s.expires(), now)
		}
		if s.taken(now) {
			taken = append(taken, s)
		}
	}
	if len(taken) >= r.Slots {
		s := slices.MinFunc(taken, func(a, b *slot) int { return a.until(now).Compare(b.until(now)) })
		reason := ""
		if !s.live(now) {
			reason = backends.MinimumHold
		}
		return s.heldError(l.key, reason, s.until(now), now)
	}
	if l.pause.active(now) {
		return l.pausedError(now)
	}
	return nil
}

func (s *slot) heldError(key, reason string, until, now time.Time) *backends.HeldError {
	return &backends.HeldError{Key: key, Holder: s.holder, Host: s.host, PID: s.pid, Token: s.token,
		Since: s.acquired, Until: until, Left: until.Sub(now), Reason: reason}
}

func (l *leaseDocument) pausedError(now time.Time) *backends.HeldError {
	p := l.pause
	h := &backends.HeldError{Key: l.key, Holder: p.by, Since: p.at, Until: p.until, Paused: true, Reason: p.reason}
	if !p.until.IsZero() {
		h.Left = p.until.Sub(now)
	}
	return h
}

// free is the lowest slot that is not taken.
func (l *leaseDocument) free(now time.Time) int {
	for n := 0; ; n++ {
		if s := l.slots[n]; s == nil || !s.taken(now) {
			return n
		}
	}
}
