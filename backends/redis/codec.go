package redis

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// who is the part of leases, pauses and records that no script looks into but for the run id.
type who struct {
	RunID  string `json:"run_id,omitempty"`
	Holder string `json:"holder,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Waited int64  `json:"waited_us,omitempty"`
	Reason string `json:"reason,omitempty"` // of a pause
	Loose  bool   `json:"loose,omitempty"`
	// ID is the same in the copies that the servers of a quorum keep of one run.
	ID string `json:"id,omitempty"`
}

func (w who) text() string {
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and integers
	}
	return string(b)
}

func whoOf(r backends.Request) who {
	return who{RunID: r.RunID, Holder: r.Holder, Host: r.Host, PID: r.PID, Waited: r.Waited.Microseconds(), Loose: r.Loose, ID: r.Owner[:16]}
}

// row is one slot of a lease hash, as lua/lib.lua describes it. Times are the server's.
type row struct {
	slot                             int
	owner                            string
	token                            int64
	attempt                          int
	state                            string
	acquired, renewed, expires, hold time.Time
	who                              who
}

func (r row) live(now time.Time) bool  { return r.state != "R" && now.Before(r.expires) }
func (r row) taken(now time.Time) bool { return r.live(now) || now.Before(r.hold) }

// until is when the slot will be free unless somebody renews.
func (r row) until(now time.Time) time.Time {
	if r.live(now) && r.expires.After(r.hold) {
		return r.expires
	}
	return r.hold
}

// dump is all of a key's lease hash at one moment of the server's clock.
type dump struct {
	key     string
	now     time.Time
	known   bool // there is such a hash
	token   int64
	pause   *pauseRow
	rows    []row // by slot
	waiters *int
}

type pauseRow struct {
	at, until time.Time // until is zero for ever
	who       who
}

func (d dump) paused() bool {
	return d.pause != nil && (d.pause.until.IsZero() || d.now.Before(d.pause.until))
}

// without leaves the rows of an owner out.
func (d dump) without(owner string) dump {
	d.rows = slices.DeleteFunc(slices.Clone(d.rows), func(r row) bool { return r.owner == owner })
	return d
}

// running is the live lease of another owner that has the run id of r, nil where there is none.
func (d dump) running(r backends.Request) *row {
	i := slices.IndexFunc(d.rows, func(l row) bool {
		return r.RunID != "" && l.who.RunID == r.RunID && l.owner != r.Owner && l.live(d.now)
	})
	if i < 0 {
		return nil
	}
	return &d.rows[i]
}

// taken are the rows that are taken, by slot.
func (d dump) taken() (all []row) {
	for _, r := range d.rows {
		if r.taken(d.now) {
			all = append(all, r)
		}
	}
	return all
}

// errForeign is for asking commands, which use no script; a script says the same in its own words.
const errForeign = serverError("LOCKRUNFOREIGN the hash under this key was not written by this version of lockrun")

// parseDump reads the fields of a lease hash.
func parseDump(key string, now time.Time, fields map[string]string) (dump, error) {
	d := dump{key: key, now: now, known: len(fields) > 0}
	if d.known && fields["lockrun"] != "1" {
		return d, errForeign
	}
	d.token, _ = strconv.ParseInt(fields["token"], 10, 64)
	if p, ok := fields["pause"]; ok {
		d.pause = parsePause(p)
	}
	for name, text := range fields {
		slot, err := strconv.Atoi(strings.TrimPrefix(name, "s"))
		if err != nil || name[0] != 's' {
			continue
		}
		r, ok := parseRow(slot, text)
		if !ok {
			return d, errForeign
		}
		d.rows = append(d.rows, r)
	}
	slices.SortFunc(d.rows, func(a, b row) int { return a.slot - b.slot })
	return d, nil
}

func parseRow(slot int, text string) (row, bool) {
	head, tail, ok := strings.Cut(text, "\n")
	f := strings.Fields(head)
	if !ok || len(f) != 9 {
		return row{}, false
	}
	r := row{slot: slot, owner: f[0], state: f[3], acquired: micros(f[4]), renewed: micros(f[5]), expires: micros(f[6]), hold: micros(f[7])}
	r.token, _ = strconv.ParseInt(f[1], 10, 64)
	r.attempt, _ = strconv.Atoi(f[2])
	return r, json.Unmarshal([]byte(tail), &r.who) == nil
}

func parsePause(text string) *pauseRow {
	head, tail, _ := strings.Cut(text, "\n")
	at, until, _ := strings.Cut(head, " ")
	p := &pauseRow{at: micros(at)}
	if until != "0" {
		p.until = micros(until)
	}
	_ = json.Unmarshal([]byte(tail), &p.who) // what is not ours shows as a pause by nobody
	return p
}

// micros reads microseconds since 1970; zero is the zero time.
func micros(s string) time.Time {
	s, _, _ = strings.Cut(s, ".")
	n, _ := strconv.ParseInt(s, 10, 64)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// stamp writes what micros reads.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// length is a duration for a script; one that no clock lives to see is cut, so that sums stay exact.
func length(d time.Duration) string {
	return strconv.FormatInt(min(d, 100*365*24*time.Hour).Microseconds(), 10)
}
