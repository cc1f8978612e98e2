package main

import (
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// arena is a store to contend for, and what can go wrong with it.
type arena struct {
	name   string
	url    string // as lockrun is told
	direct string // the same past any proxy; "": there is none
	faults []fault
	remove func(b *blow) // takes what the store knows of the blow's key away, as an operator by hand would
	heal   func()        // ends whatever fault is going on

	begunAnew bool // a lease that has run out may be told of as held until somebody asks for its key
}

// fault is one thing that can go wrong with a store. do makes it happen and ends it again.
type fault struct {
	name    string
	do      func(b *blow)
	forgets bool          // the store may lose what it had acknowledged
	marks   bool          // the store may lose done-marks, and nothing else
	tokens  bool          // and its token counters with it
	aKey    bool          // only of the blow's key
	shift   time.Duration // by how much its clock is set back at most
}

// blow is one time that a fault happens.
type blow struct {
	g      *game
	r      *rand.Rand
	length time.Duration // of what has an end
	key    string        // one of those that are contended for
}

// wait lets the fault last.
func (b *blow) wait() { b.g.rest(b.length) }

// stores are the backends that can be tortured. The function starts what is needed, or skips.
var stores = []struct {
	name  string
	build func(t testserver.TB, g *game) *arena
}{
	{"sqlite", sqliteArena},
	{"redis", redisArena},
	{"redis-quorum", quorumArena},
	{"redis-sentinel", sentinelArena},
	{"redis-cluster", clusterArena},
	{"mariadb", mariadbArena},
	{"kafka", kafkaArena},
	{"zookeeper", zookeeperArena},
	{"firestore", firestoreArena},
}

// byHand is the fault that removes the record of a key.
func (a *arena) byHand() fault {
	return fault{name: "record removed by hand", forgets: true, aKey: true, do: a.remove}
}

// faultsOf are the faults of a network in front of one server.
func faultsOf(p *testserver.Proxy) []fault {
	// One at a time, so that what is asked again is answered.
	lose := func(how func(string, testserver.After) func() bool, after testserver.After) func(*blow) {
		return func(b *blow) {
			for range 1 + b.r.IntN(20) {
				how("", after)
				b.g.rest(40 * time.Millisecond)
			}
			p.Heal()
		}
	}
	return []fault{
		{name: "connections reset", do: func(b *blow) {
			for range 1 + b.r.IntN(5) {
				p.Reset()
				b.g.rest(b.length / 5)
			}
		}},
		{name: "connections refused", do: func(b *blow) { p.Refuse(); b.wait(); p.Heal() }},
		{name: "black hole", do: func(b *blow) { p.BlackHole(); b.wait(); p.Heal(); p.Reset() }},
		{name: "latency", do: func(b *blow) { p.Delay(between(b.r, time.Millisecond, 150*time.Millisecond)); b.wait(); p.Heal() }},
		{name: "replies lost", do: lose(p.LoseReply, testserver.KeepOpen)},
		{name: "replies lost with their connections", do: lose(p.LoseReply, testserver.CloseIt)},
		{name: "requests lost", do: lose(p.LoseRequest, testserver.KeepOpen)},
	}
}

// processFaults are the faults of one server whose data outlive it.
func processFaults(p *testserver.Process) []fault {
	return []fault{
		{name: "server frozen", do: func(b *blow) { p.Freeze(); b.wait(); p.Thaw() }},
		{name: "server killed", do: func(b *blow) { p.Kill(); b.g.rest(b.length / 4); p.Restart() }},
	}
}
