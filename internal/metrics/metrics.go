// Package metrics defines lockrun's metrics once, for every way in which they reach Prometheus: a file for node_exporter's
// textfile collector, a Pushgateway, and the text that lockrun metrics derives from a store.
//
// A Set holds the sums of any number of keys. It is written in Prometheus' text format, and read back from what it
// wrote, because a process that lives for one run can keep a sum only in a file.
package metrics

import "time"

// Outcomes are the values of the label outcome, in the order in which they are written. All of them are written for each
// key, most of them with 0: a counter that appears with its first loss shows no increase, and no alert sees it.
var Outcomes = [...]string{
	"succeeded", "failed", "skipped", "done", "lost", "timeout", "unavailable", "not-started", "unlocked", "crashed",
}

// Upper bounds of the histograms' buckets, in seconds.
var (
	acquireBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	waitBounds    = []float64{0, .1, 1, 5, 15, 60, 300, 900, 3600, 14400}
	holdBounds    = []float64{.1, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400}
)

// Sums are what is known of one key.
type Sums struct {
	runs                [len(Outcomes)]uint64
	acquire, wait, hold histogram

	renewFailures, releaseFailures, takeovers, fallbacks uint64

	lastSuccess float64 // Unix time; 0: none
	lastExit    int
	exited      bool      // lastExit says something
	exitedAt    time.Time // what is older than this does not change it

	leased        bool // the three below say something
	held, waiters int
	countsWaiters bool
	expires       float64 // Unix time; 0: not held, or nobody can tell
}

// Set is the metrics of any number of keys. It is not safe for concurrent use.
type Set struct {
	keys map[string]*Sums

	// Observed says that runs told of themselves, as they do into a file. Run records, which a derived set is made from,
	// know nothing of how long an acquire took, of failed renewals and releases, and of fallbacks; then these are left
	// out, since 0 would be wrong.
	Observed bool
}

// NewSet returns an empty set.
func NewSet(observed bool) *Set { return &Set{keys: map[string]*Sums{}, Observed: observed} }

// Key returns the sums of a key, which appears in the set from now on.
func (s *Set) Key(key string) *Sums {
	k := s.keys[key]
	if k == nil {
		k = &Sums{}
		k.acquire.init(acquireBounds)
		k.wait.init(waitBounds)
		k.hold.init(holdBounds)
		s.keys[key] = k
	}
	return k
}

// Only is the part of the set that is about key.
func (s *Set) Only(key string) *Set {
	part := NewSet(s.Observed)
	if k := s.keys[key]; k != nil {
		part.keys[key] = k
	}
	return part
}

// Run is one run, finished or refused.
type Run struct {
	Outcome string         // one of Outcomes; another is not counted
	Acquire *time.Duration // from the request to the answer that granted or refused; nil: unknown
	Wait    time.Duration  // for a held lease
	Hold    *time.Duration // from the grant to the end; nil: there was no lease
	Ended   time.Time
	Exit    *int // COMMAND's own code; nil: none

	RenewFailures, ReleaseFailures int
	Takeover, Fallback             bool
}

// Add counts a run.
func (k *Sums) Add(r *Run) {
	k.Count(r.Outcome)
	if r.Acquire != nil {
		k.acquire.observe(r.Acquire.Seconds())
	}
	k.wait.observe(r.Wait.Seconds())
	if r.Hold != nil {
		k.hold.observe(r.Hold.Seconds())
	}
	k.renewFailures += uint64(max(r.RenewFailures, 0))
	k.releaseFailures += uint64(max(r.ReleaseFailures, 0))
	k.fallbacks += one(r.Fallback)
	k.takeovers += one(r.Takeover)
	if r.Outcome == Outcomes[0] {
		k.lastSuccess = max(k.lastSuccess, seconds(r.Ended))
	}
	if r.Exit != nil && !r.Ended.Before(k.exitedAt) {
		k.lastExit, k.exited, k.exitedAt = *r.Exit, true, r.Ended
	}
}

// Count counts an outcome alone, of a run that was counted with another one before.
func (k *Sums) Count(outcome string) {
	for i, o := range Outcomes {
		if o == outcome {
			k.runs[i]++
		}
	}
}

// AddTakeovers counts leases that ran out without a release and were taken by somebody else then.
func (k *Sums) AddTakeovers(n int) { k.takeovers += uint64(max(n, 0)) }

// Lease is the state of a key's leases now.
type Lease struct {
	Held    int       // slots that are taken
	Expires time.Time // when the first of them ends unless it is renewed; zero: none, or nobody can tell
	Waiters *int      // nil: the store cannot tell
}

// SetLease replaces what was known of the key's leases.
func (k *Sums) SetLease(l Lease) {
	k.leased, k.held, k.expires = true, l.Held, 0
	if !l.Expires.IsZero() {
		k.expires = seconds(l.Expires)
	}
	k.waiters, k.countsWaiters = 0, l.Waiters != nil
	if l.Waiters != nil {
		k.waiters = *l.Waiters
	}
}

func one(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// seconds is Prometheus' form of an instant. Microseconds of this century fit into a float64 exactly enough.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
