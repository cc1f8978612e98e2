package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// plan is everything about one run that is decided beforehand, from the seed, the worker and the number of the run alone.
// So the same seed asks for the same again, whatever the machine does meanwhile.
type plan struct {
	Key     string
	Slots   int
	RunID   string
	TTL     time.Duration
	Wait    time.Duration
	Timeout time.Duration // of the job; 0: none
	Work    time.Duration
	Mode    string // of the job
	Exit    int
	Space   int // number of the time namespace to run in; -1: the harness's own
	Harm    harm
}

// harm is what is done to one run.
type harm struct {
	Kind   string        // "" for nothing
	Begun  bool          // counted from the beginning of the job, not of lockrun
	After  time.Duration // when it is done
	Length time.Duration // of what has an end
	Gap    time.Duration // between the signals of a storm
	Times  int
}

// harms are what can be done to a run, with how often in a hundred harmed runs.
var harms = []struct {
	kind  string
	share int
}{
	{killRun, 16}, {stopRun, 20}, {killJob, 8}, {stopJob, 8}, {killBoth, 10}, {stopBoth, 12}, {freezeTree, 8}, {storm, 12}, {killGuard, 6},
}

const (
	killRun    = "kill -9 lockrun"
	stopRun    = "stop lockrun"
	killJob    = "kill -9 job"
	stopJob    = "stop job"
	killBoth   = "kill -9 both"
	stopBoth   = "stop both"
	freezeTree = "freeze whole tree"
	storm      = "storm of signals"
	killGuard  = "kill -9 guard"
)

// shared are the keys that runs contend for. The rest is lonely: each is asked for by one run only, so that whoever is
// told that somebody else holds it has been told a lie.
var shared = []struct {
	key   string
	slots int
	share int
}{
	{"hot-a", 1, 10}, {"hot-b", 1, 10}, {"hot-slots", 2, 10}, {"tick", 3, 12},
	{"warm-a", 1, 8}, {"warm-b", 1, 8}, {"warm-c", 1, 8}, {"warm-d", 1, 8}, {"warm-e", 1, 8}, {"warm-slots", 3, 6},
}

// perID is how many runs of each worker ask for the same run id.
const perID = 4

// newPlan decides about run n of a worker.
func (g *game) newPlan(worker, n int) plan {
	r := rand.New(rand.NewPCG(g.seed, uint64(worker+1)<<32|uint64(n)))
	ttl := g.ttls[r.IntN(len(g.ttls))]
	p := plan{TTL: ttl, Slots: 1, Mode: "plain", Space: -1}
	p.Key = fmt.Sprintf("lonely-%d-%d", worker, n)
	at := r.IntN(100)
	if g.crowded {
		at /= 2
	}
	for _, s := range shared {
		if at -= s.share; at < 0 {
			p.Key, p.Slots = s.key, s.slots
			break
		}
	}
	if p.Key == "tick" {
		p.RunID = strconv.Itoa(n / perID)
	}
	if r.IntN(3) > 0 {
		p.Wait = between(r, 50*time.Millisecond, 3*time.Second)
	}
	p.Work = between(r, 0, 40*time.Millisecond)
	if r.IntN(6) == 0 {
		p.Work = between(r, 0, 2*ttl)
	}
	if g.crowded { // somebody is to be there when another comes back late
		p.Work, p.Wait = max(p.Work, between(r, 0, ttl)), max(p.Wait, ttl)
	}
	if r.IntN(8) == 0 {
		p.Exit = 3
	}
	if r.IntN(30) == 0 {
		p.Timeout, p.Work = between(r, 10*time.Millisecond, 100*time.Millisecond), 20*time.Second
	}
	switch at := r.IntN(20); {
	case at == 0:
		p.Mode = "stubborn"
	case at == 1:
		p.Mode = "linger"
	}
	if at := r.IntN(10); at < spaces {
		p.Space = at
	}
	if r.IntN(100) < g.harmed {
		p.Harm = newHarm(r, &p)
	}
	return p
}

func newHarm(r *rand.Rand, p *plan) harm {
	var h harm
	at := r.IntN(100)
	for _, c := range harms {
		if at -= c.share; at < 0 {
			h.Kind = c.kind
			break
		}
	}
	h.Begun = r.IntN(4) > 0
	h.After = between(r, 0, 20*time.Millisecond)
	if r.IntN(2) == 0 {
		// What is harmed later has to last longer, or it is over by then.
		h.After = between(r, 0, p.TTL)
		p.Work = max(p.Work, h.After+p.TTL/4)
	}
	h.Length = between(r, p.TTL/10, p.TTL*5/2)
	h.Times, h.Gap = 3+r.IntN(12), between(r, 0, 15*time.Millisecond)
	if h.Kind == stopRun || h.Kind == stopBoth || h.Kind == freezeTree {
		p.Work = max(p.Work, h.After+h.Length) // so that there is something to stop
	}
	return h
}

// between is a duration of at least from and less than to.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(max(to-from, 1))))
}
