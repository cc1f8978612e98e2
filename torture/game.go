package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// config is what a game is played with.
type config struct {
	lockrun  string // programs, as absolute paths
	job      string
	seed     uint64
	grants   int           // jobs to start before the game ends
	atMost   time.Duration // how long it may last; 0: until the grants are reached
	atLeast  int           // grants for which it may last five times as long, on a machine that has little time
	workers  int
	harmed   int // of a hundred runs
	ttls     []time.Duration
	timeout  time.Duration // --backend-timeout
	slack    time.Duration // what a busy machine may add to any bound
	quick    bool          // end at the first violation
	rules    []string      // that count for quick; none: all
	only     string        // faults of the store whose name holds this; "": all
	keep     bool          // leave the folder
	small    bool          // one server where there would be three
	crowded  bool          // more of the runs contend for the first few keys
	progress func(format string, args ...any)

	interrupted <-chan os.Signal // ends the game early, with a report; nil: never
}

// game is one backend under torture.
type game struct {
	config
	arena  *arena
	dir    string   // of claims and counters
	spaces []string // files of time namespaces whose clocks read another time

	listening sync.WaitGroup
	stop      chan struct{}

	mu         sync.Mutex // guards all below, and the runs
	runs       []*run
	grants     int
	harms      map[string]int
	windows    []window
	violations []violation // found while playing
	found      []violation // by the checker
	ended      bool
	failure    error // of the harness
	late       lateness
	recoveries []time.Duration
}

// window is a time in which something was wrong with the store.
type window struct {
	Fault    string
	From, To time.Duration // To is 0 while it lasts
	Forgets  bool          // the store may have forgotten what it had acknowledged
	Key      string        // what it forgot; "": anything
	Tokens   bool          // it forgot the token counters too
	Marks    bool          // it may have forgotten done-marks, and nothing else
	Shift    time.Duration // by how much its clock was set back at most
}

// violation is a promise that was broken.
type violation struct {
	Rule string
	Runs []int
	What string
}

func (v violation) String() string { return fmt.Sprintf("%s: runs %v: %s", v.Rule, v.Runs, v.What) }

// report is what a game came to.
type report struct {
	arena      string
	seed       uint64
	took       time.Duration
	runs       int
	grants     int
	harms      map[string]int
	faults     map[string]int
	codes      map[int]int
	excused    int      // overlaps that the contract allows for
	late       [][2]int // overlaps while the machine had no time for a guard
	starved    int      // leases lost without anything that was done to them
	recovery   time.Duration
	violations []violation
	failure    error
	dir        string // what is left of it, for whoever has to find out
}

// play tortures one backend.
func play(t testserver.TB, c config, build func(t testserver.TB, g *game) *arena) *report {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockrun-torture-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	g := &game{config: c, dir: dir, stop: make(chan struct{}), harms: map[string]int{}}
	// Cleaning runs backwards: first the servers, then the folder.
	t.Cleanup(func() {
		if !g.keep && len(g.violations)+len(g.found) == 0 {
			os.RemoveAll(dir)
		}
	})
	if g.lockrun, err = ownCopy(c.lockrun, g.path("lockrun")); err != nil {
		t.Fatalf("%v", err)
	}
	g.spaces = makeSpaces(t, g)
	g.arena = build(t, g)
	start := bootNow()
	g.attack()
	g.failsafe(g.calm)
	defer g.sweep()
	return g.report(start)
}

// ownCopy gives a program a name of its own in this game, so that its processes can be told from those of another.
func ownCopy(from, to string) (string, error) {
	if os.Link(from, to) == nil {
		return to, nil
	}
	program, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(to, program, 0o755)
}

// attack lets workers contend and faults happen, until there have been enough grants.
func (g *game) attack() {
	var all sync.WaitGroup
	for w := range g.workers {
		all.Go(func() { g.work(w) })
	}
	all.Go(g.watch)
	// A test that fails in here ends this goroutine, and the others are not to go on without servers.
	defer func() {
		g.finish()
		all.Wait()
		heard := make(chan struct{})
		go func() { g.listening.Wait(); close(heard) }()
		pause(heard, killBound+g.slack) // what lives on is found by the checker
	}()
	for n := uint64(0); !g.over(); n++ {
		g.failsafe(func() { g.fault(rand.New(rand.NewPCG(g.seed, n|1<<63))) })
	}
}

// finish has everybody stop.
func (g *game) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// failsafe keeps what has been found, where a server cannot be brought to fail, or back, as it should.
func (g *game) failsafe(do func()) {
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			g.broken("%w", f.error)
		}
	}()
	do()
}

// tellEvery is how often somebody who waits is told how far the game has got.
const tellEvery = 15 * time.Second

// watch ends the game.
func (g *game) watch() {
	begun := bootNow()
	told, judged := begun, begun
	for last := begun; ; {
		ended := false
		select {
		case <-time.After(latenessEvery):
		case <-g.interrupted:
			ended = true
		}
		now := bootNow()
		g.mu.Lock()
		g.late.note(now, now-last-latenessEvery)
		last = now
		done := ended || g.ended || g.grants >= g.config.grants || g.tooLong(now-begun) || g.failure != nil || g.quick && g.hit()
		g.ended = g.ended || done
		grants, runs := g.grants, len(g.runs)
		g.mu.Unlock()
		if done {
			close(g.stop)
			return
		}
		if now-told > tellEvery {
			told = now
			g.progress("%s: %d of %d grants, %d runs, %v", g.arena.name, grants, g.config.grants, runs, (now - begun).Round(time.Second))
		}
		if g.quick && now-judged > 2*time.Second {
			judged = now
			g.judge()
		}
	}
}

// tooLong tells whether the time is over. The caller has the lock.
func (g *game) tooLong(took time.Duration) bool {
	return g.atMost > 0 && took > g.atMost && (g.grants >= g.atLeast || took > 5*g.atMost)
}

// hit tells whether something was found that a quick game ends with. The caller has the lock.
func (g *game) hit() bool {
	return slices.ContainsFunc(slices.Concat(g.violations, g.found), func(v violation) bool {
		return len(g.rules) == 0 || slices.Contains(g.rules, v.Rule)
	})
}

func (g *game) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

// fault does one thing to the store, after a while, and notes from when to when it was wrong.
func (g *game) fault(r *rand.Rand) {
	all := g.faults()
	if len(all) == 0 {
		g.rest(time.Second)
		return
	}
	f := all[r.IntN(len(all))]
	length := between(r, 50*time.Millisecond, g.ttls[len(g.ttls)-1]*2)
	if !g.rest(between(r, 200*time.Millisecond, 2500*time.Millisecond)) {
		return
	}
	key := shared[r.IntN(len(shared))].key
	g.mu.Lock()
	w := window{Fault: f.name, From: bootNow(), Forgets: f.forgets, Tokens: f.tokens, Marks: f.marks, Shift: f.shift}
	if f.aKey {
		w.Key = key
	}
	g.windows = append(g.windows, w)
	i := len(g.windows) - 1
	g.mu.Unlock()
	f.do(&blow{g: g, r: r, length: length, key: key})
	g.mu.Lock()
	healed := bootNow()
	g.windows[i].To = healed
	g.mu.Unlock()
	g.recover(f, healed)
}

// faults are those that were asked for.
func (g *game) faults() (all []fault) {
	for _, f := range g.arena.faults {
		if contains(f.name, g.only) {
			all = append(all, f)
		}
	}
	return all
}

// rest waits, and tells whether the game goes on.
func (g *game) rest(d time.Duration) bool { return pause(g.stop, d) }

// recover measures how long after the end of a fault the next job starts.
func (g *game) recover(f fault, healed time.Duration) {
	most := g.ttls[len(g.ttls)-1] + f.shift + g.slack + recoveryBound
	g.mu.Lock()
	before := g.grants
	g.mu.Unlock()
	for g.rest(5 * time.Millisecond) {
		g.mu.Lock()
		now := bootNow()
		again := g.grants > before
		if again {
			g.recoveries = append(g.recoveries, now-healed)
		}
		g.mu.Unlock()
		if again {
			return
		}
		if now-healed > most {
			g.violated(violation{Rule: "leases are granted again", What: fmt.Sprintf("not within %v after %q", most, f.name)})
			return
		}
	}
}

// recoveryBound is what may pass beside a TTL until the next job starts: runs that wait for an answer give up only after
// the backend timeout, and ask again after a back-off.
const recoveryBound = 10 * time.Second

func (g *game) violated(v violation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.violations = append(g.violations, v)
}

// broken tells that the harness itself has failed, so that nothing was proved.
func (g *game) broken(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure == nil {
		g.failure = fmt.Errorf(format, args...)
	}
}

func (g *game) path(name string) string { return filepath.Join(g.dir, name) }
