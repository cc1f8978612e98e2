package ledger

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// sea is a network that keeps requests for as long as it likes, hands them over in whatever order, and loses replies; with a
// log behind it whose leaders and clocks change.
type sea struct {
	*world
	s       State
	slots   int
	sailors []*sailor
	flights []flight
	results map[string]Result
	done    map[string]bool
	highest int64 // token that somebody has relied on
	grants  int
	late    int // requests that arrived after their sender had given them up
}

// flight is a request on its way.
type flight struct {
	e    *Entry
	from *sailor
	sent int64
	lost bool // its reply will be
}

// sailor is one host, which has one request at a time, and gives it up after a while.
type sailor struct {
	*sea
	name   string
	n      int64
	owner  string
	runID  string
	token  int64
	relies int64  // until then, by real time; 0: it has no lease
	awaits string // the ID of a request
	sent   int64  // when that was
	ttl    int64
}

const seaDrift = 50

// send puts a request on its way.
func (p *sailor) send(e *Entry) {
	p.n++
	e.Key, e.Writer, e.N, e.Owner, e.RunID = "k", p.name, p.n, p.owner, p.runID
	p.awaits, p.sent = e.ID(), p.real
	p.flights = append(p.flights, flight{e, p, p.real, p.rnd.IntN(4) == 0})
}

// act is what a host does next.
func (p *sailor) act() {
	holds := p.relies > p.real
	switch {
	case p.awaits != "":
		if p.rnd.IntN(6) == 0 { // no reply in time: it looks into the log, as far as that goes by now
			if res, ok := p.results[p.awaits]; ok {
				p.hear(res)
			} else {
				p.awaits = ""
			}
		}
	case holds && p.rnd.IntN(3) > 0:
		p.send(&Entry{Kind: Heartbeat, Token: p.token, TTL: p.ttl})
	case holds && p.rnd.IntN(3) > 0:
		p.relies = 0
		outcomes := []backends.Outcome{backends.Succeeded, backends.Failed, backends.NotStarted}
		p.send(&Entry{Kind: Release, Token: p.token, Outcome: outcomes[p.rnd.IntN(3)], Unsure: true})
		p.awaits, p.owner = "", "" // it may hear, and has nothing more to say
	case holds: // it stops without a word when its time is over
	case p.owner == "" || p.relies != 0 || p.rnd.IntN(12) == 0:
		p.owner, p.runID, p.relies = fmt.Sprintf("%032x", p.rnd.Uint64()), fmt.Sprint("run ", p.rnd.IntN(6)), 0
		p.ttl = 300 + p.rnd.Int64N(1500)
	case p.rnd.IntN(4) == 0:
		p.send(&Entry{Kind: Abandon, Unsure: true}) // and it asks again, or not
	default:
		p.send(&Entry{Kind: Lock, TTL: p.ttl, Slots: p.slots})
	}
}

// hear takes the answer to what it has asked.
func (p *sailor) hear(res Result) {
	p.awaits = ""
	until := p.sent + p.ttl - seaDrift
	switch {
	case res.Did == Granted && p.real < until:
		p.token, p.relies = res.Lease.Token, until
		p.grants++
		p.check()
	case res.Did == Renewed && p.real < p.relies:
		p.relies = until
	case res.Did == Nothing:
		p.relies, p.owner = 0, ""
	}
}

// check looks whether anybody else relies on what this one has just been granted.
func (p *sailor) check() {
	others := 0
	for _, o := range p.sailors {
		if o == p || o.relies <= p.real {
			continue
		}
		if others++; o.runID == p.runID {
			p.t.Fatalf("%s and %s are both at %q", p.name, o.name, p.runID)
		}
	}
	if others >= p.slots {
		p.t.Fatalf("%s was granted one of %d slots, and %d others rely on theirs", p.name, p.slots, others)
	}
	if p.done[p.runID] {
		p.t.Fatalf("%s was granted %q, which has succeeded", p.name, p.runID)
	}
	if p.slots == 1 && p.token <= p.highest {
		p.t.Fatalf("%s was granted the token %d after %d", p.name, p.token, p.highest)
	}
	p.highest = max(p.highest, p.token)
}

// arrive appends one of the requests that are on their way.
func (w *sea) arrive() {
	i := w.rnd.IntN(len(w.flights))
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	r := Record{Offset: int64(len(w.results)), Time: w.real + w.offset, Epoch: w.epoch}
	res := w.s.Apply(r, f.e)
	w.results[f.e.ID()] = res
	if res.Did == Ended && f.e.Outcome == backends.Succeeded {
		w.done[res.Lease.RunID] = true
	}
	if f.from.awaits != f.e.ID() {
		w.late++
	} else if !f.lost {
		f.from.hear(res)
	}
}

// However late a request arrives, and whatever its sender has asked since: no two hosts rely on one slot or on one run at
// once, and what has succeeded is not begun again.
func TestWhateverComesLate(t *testing.T) {
	grants, late := 0, 0
	for seed := range seeds(400) {
		w := &sea{world: newWorld(t, seed), slots: 1 + int(seed%3), results: map[string]Result{}, done: map[string]bool{}}
		for i := range 5 {
			w.sailors = append(w.sailors, &sailor{sea: w, name: fmt.Sprint("host", i)})
		}
		for range 400 {
			w.real += w.rnd.Int64N(60)
			switch w.rnd.IntN(60) {
			case 0:
				w.epoch, w.offset = w.epoch+1, w.rnd.Int64N(MaxSkew)-MaxSkew/2
			case 1:
				w.offset -= w.rnd.Int64N(1000)
			case 2:
				clear(w.done) // another day
				w.s.Runs = slices.DeleteFunc(w.s.Runs, func(r Run) bool { return r.Done })
			}
			w.sailors[w.rnd.IntN(len(w.sailors))].act()
			for len(w.flights) > 0 && w.rnd.IntN(2) == 0 || len(w.flights) > 6 {
				w.arrive()
			}
		}
		grants, late = grants+w.grants, late+w.late
	}
	t.Logf("%d grants, %d requests that came late", grants, late)
	if grants < 200 || late < 200 {
		t.Errorf("%d grants, %d requests that came late: this shows nothing", grants, late)
	}
}
