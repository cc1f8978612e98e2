package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockrun/lockrun/backends"
)

// Format is the version of the records. A reader that finds a greater one cannot know what it means for the lock, and has
// to stop; see ErrNewer.
const Format = 1

// Kind is what a record asks for. Whether it happens is decided by replaying it.
type Kind string

// The kinds of records.
const (
	Lock      Kind = "LOCK"      // a lease, or the same owner's again
	Heartbeat Kind = "HEARTBEAT" // a renewal
	Release   Kind = "RELEASE"   // the end of a run, with its outcome
	Abandon   Kind = "ABANDON"   // what an unanswered LOCK may have taken is given back
	Break     Kind = "BREAK"     // an operator ends leases
	Pause     Kind = "PAUSE"
	Resume    Kind = "RESUME"
	Note      Kind = "NOTE"  // a run record that belongs to no RELEASE
	Clock     Kind = "CLOCK" // asks the broker for its time; belongs to no key
)

// Entry is one record's value. Times and durations in _ms are whole milliseconds of the brokers' clocks, those in _us
// microseconds of the writer's host.
type Entry struct {
	Format int    `json:"lockrun"`
	Kind   Kind   `json:"type"`
	Key    string `json:"key,omitempty"`

	// Writer and N name the append: a process, and which of its records this is. A record whose reply was lost is found
	// by them.
	Writer string `json:"writer"`
	N      int64  `json:"n"`

	Owner  string `json:"owner,omitempty"` // LOCK, HEARTBEAT, RELEASE, ABANDON: whose lease
	Token  int64  `json:"token,omitempty"` // HEARTBEAT, RELEASE: the lease's; BREAK: the one to end, 0 for all; LOCK: see backends.Request
	TTL    int64  `json:"ttl_ms,omitempty"`
	Hold   int64  `json:"hold_ms,omitempty"`
	RunID  string `json:"run_id,omitempty"` // LOCK; RELEASE and ABANDON repeat it, for the index
	Slots  int    `json:"slots,omitempty"`
	Holder string `json:"holder,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Waited int64  `json:"waited_us,omitempty"`
	Loose  bool   `json:"loose,omitempty"`
	Last   bool   `json:"last,omitempty"` // LOCK: a refusal is final, and belongs in the history

	Outcome  backends.Outcome `json:"outcome,omitempty"`
	ExitCode *int             `json:"exit_code,omitempty"`
	Duration int64            `json:"duration_us,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	By       string           `json:"by,omitempty"`     // BREAK, PAUSE: who
	For      int64            `json:"for_ms,omitempty"` // PAUSE: how long; 0: until resumed

	// Unsure says of a RELEASE or ABANDON that an earlier append of the same writer may still arrive; those before N are
	// then void.
	Unsure bool `json:"unsure,omitempty"`

	Record *backends.Record `json:"record,omitempty"` // NOTE
	Past   *Past            `json:"past,omitempty"`   // LOCK: of its run id

	Partitions int `json:"partitions,omitempty"` // over how many the writer spreads keys; 0: it does not say

	KeepRuns int   `json:"keep_runs,omitempty"` // how many runs and refusals the writer keeps; 0: the default
	KeepAge  int64 `json:"keep_ms,omitempty"`
	DoneAge  int64 `json:"done_ms,omitempty"` // how long done-marks are kept
}

// Carry is what a record's writer knew, in a header of the record beside its value, which says what is asked for and is
// all that other readers of the topic need.
type Carry struct {
	AsOf  int64  `json:"as_of"`           // State and Index are those after the record at this offset; -1: before any
	State *State `json:"state,omitempty"` // of the record's key; nil: nothing is known of it
	Index []Node `json:"index,omitempty"` // the path to the key through the index of the partition
	IDs   []Node `json:"ids,omitempty"`   // the path to the record's run id through the index of those; without one, its root
}

// HeaderName is the name of the header that has the Carry.
const HeaderName = "lockrun"

// Record is one record of a partition as the broker keeps it.
type Record struct {
	Offset int64
	Time   int64 // the broker's, at the append, in ms; 0 where the topic keeps the producers' times
	Epoch  int32 // of the leader that appended it
	Key    []byte
	Value  []byte
	Carry  []byte // the header HeaderName
}

// Why a record has no meaning here. All but ErrNewer are passed over.
var (
	ErrForeign   = errors.New("it is not lockrun's")
	ErrMalformed = errors.New("it is damaged")
	ErrNewer     = errors.New("a newer lockrun wrote it")
)

// maxAmount bounds every number in a record so that sums of a few of them do not overflow. It is also what readers of JSON
// can keep exactly.
const maxAmount = 1 << 53

// RecordKey is the key of the Kafka record: unlike for each, so that compaction, should somebody switch it on, removes
// nothing. It begins with the lock's key and a NUL byte, which no key contains.
func (e *Entry) RecordKey() []byte {
	who := e.Owner
	if who == "" {
		who = e.Writer
	}
	return fmt.Appendf(nil, "%s\x00%s\x00%s-%d", e.Key, who, e.Writer, e.N)
}

// HasKey tells whether a Kafka record key is that of a record of the lock's key.
func HasKey(recordKey []byte, key string) bool {
	n := len(key)
	return len(recordKey) > n && recordKey[n] == 0 && string(recordKey[:n]) == key
}

// Encode is the record's value.
func (e *Entry) Encode() ([]byte, error) {
	e.Format = Format
	return encode(e)
}

// Encode is the header's value.
func (c *Carry) Encode() ([]byte, error) { return encode(c) }

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Decode reads a record's value. The error is ErrForeign, ErrMalformed or ErrNewer.
func Decode(r Record) (*Entry, error) {
	if len(r.Value) == 0 || r.Value[0] != '{' || !bytes.Contains(r.Value, []byte(`"lockrun":`)) {
		return nil, ErrForeign
	}
	var e Entry
	err := json.Unmarshal(r.Value, &e)
	switch {
	case e.Format > Format:
		return nil, ErrNewer
	case e.Format < 1:
		return nil, ErrForeign
	case err != nil, !e.sound(), !e.Past.sound(r), r.Time <= 0, string(e.RecordKey()) != string(r.Key):
		return nil, ErrMalformed
	}
	return &e, nil
}

// DecodeCarry reads what a record's writer knew. The error is ErrMalformed.
func DecodeCarry(r Record) (*Carry, error) {
	var c Carry
	if json.Unmarshal(r.Carry, &c) != nil || c.AsOf < -1 || c.AsOf >= r.Offset || !c.State.sound() || !soundPath(c.Index) || !soundPath(c.IDs) {
		return nil, ErrMalformed
	}
	return &c, nil
}

// sound tells whether the record is one that lockrun could have written. What it says is not judged here.
func (e *Entry) sound() bool {
	for _, n := range []int64{e.Token, e.TTL, e.Hold, e.Waited, e.Duration, e.For, e.KeepAge, e.DoneAge, e.N, int64(e.KeepRuns), int64(e.Slots), int64(e.Partitions)} {
		if n < 0 || n >= maxAmount {
			return false
		}
	}
	if e.Writer == "" || len(e.Writer) > 64 {
		return false
	}
	if e.Kind == Clock {
		return e.Key == ""
	}
	return backends.CheckKey(e.Key) == nil && e.soundKind()
}

func (e *Entry) soundKind() bool {
	owned := backends.CheckOwner(e.Owner) == nil
	switch e.Kind {
	case Lock:
		return owned && e.TTL > 0 && e.Slots > 0
	case Heartbeat:
		return owned && e.TTL > 0 && e.Token > 0
	case Release:
		return owned && e.Token > 0 && e.Outcome != ""
	case Abandon:
		return owned
	case Note:
		return e.Record != nil && e.Record.Outcome != ""
	case Break, Pause, Resume:
		return true
	}
	return false
}

// ID names the append among all.
func (e *Entry) ID() string { return e.Writer + "-" + strconv.FormatInt(e.N, 10) }
