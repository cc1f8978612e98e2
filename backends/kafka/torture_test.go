package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
	"github.com/lockrun/lockrun/internal/testserver"
)

// tortureTime is how long the torture test goes on: a moment, unless somebody asks for more.
//
//	LOCKRUN_KAFKA_TORTURE=10m go test -run Torture -timeout 20m -v ./backends/kafka
func tortureTime(t *testing.T) time.Duration {
	text := os.Getenv("LOCKRUN_KAFKA_TORTURE")
	if text == "" {
		return 12 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// span is how long somebody relied on a lease, by the clock that holders go by.
type span struct {
	from, to time.Duration
	token    int64
	slot     int
}

// arena is one key that many fight for. What is protected by the lease alone is the counter.
type arena struct {
	key   string
	slots int

	mu      sync.Mutex // for the memory model: taken for each look and each write, never from one to the other
	spans   []span
	counter []int // by slot
	writes  []int
	lost    int // updates that somebody else's was in between of
	grants  int
	refused int
	unknown int
	crashes int
	told    int // renewals that were told that the lease is lost
}

// 32 contenders on three brokers whose clocks differ, leases of 300 ms to a second, one holder in five that stops without
// a word, and a leader that is moved, killed or frozen every few seconds: no two ever rely on a lease at once, tokens rise,
// and no update under a lease is lost.
func TestTorture(t *testing.T) {
	t.Parallel()
	length := tortureTime(t)
	config := testserver.KafkaConfig{}
	if os.Getenv("LOCKRUN_KAFKA_TORTURE") != "" {
		config.Clock = []time.Duration{0, 600 * time.Millisecond, -600 * time.Millisecond}
	}
	c := testserver.StartKafkaCluster(t, 3, config)
	s := &store{TB: t, cluster: c, topic: "torture"}
	if err := s.open(backends.Options{}).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	arenas := []*arena{newArena("one", 1), newArena("two slots", 2)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range 32 {
		a := arenas[0]
		if i%4 == 3 {
			a = arenas[1]
		}
		all.Go(func() { s.fight(ctx, a) })
	}
	disturbed, calm := context.WithTimeout(ctx, length)
	defer calm()
	faults := s.disturb(disturbed)
	// On a machine that is too busy for anything, the fight goes on until there is something to judge.
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && slices.ContainsFunc(arenas, (*arena).idle); {
		pause(ctx, 100*time.Millisecond)
	}
	cancel()
	all.Wait()
	for _, a := range arenas {
		a.judge(t, length)
	}
	t.Logf("faults: %v", faults)
}

func newArena(key string, slots int) *arena {
	return &arena{key: key, slots: slots, counter: make([]int, slots), writes: make([]int, slots)}
}

// disturb moves, kills and freezes leaders until ctx ends.
func (s *store) disturb(ctx context.Context) map[string]int {
	c, faults := s.cluster, map[string]int{}
	for ctx.Err() == nil {
		pause(ctx, time.Second+rand.N(3*time.Second))
		if ctx.Err() != nil {
			break
		}
		old := c.Leader(s.topic, 0)
		others := slices.DeleteFunc(slices.Clone(c.Nodes), func(b *testserver.Kafka) bool { return b == old })
		switch rand.N(4) {
		case 0:
			faults["killed"]++
			old.Kill()
			pause(ctx, rand.N(3*time.Second))
			old.Restart()
		case 1:
			faults["frozen"]++
			old.Freeze()
			pause(ctx, rand.N(4*time.Second))
			old.Thaw()
		default:
			faults["moved"]++
			c.MoveLeader(s.topic, 0, others[rand.N(len(others))])
		}
		c.InSync(s.topic, 0, 3)
	}
	return faults
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fight takes the lease again and again, as one host after another.
func (s *store) fight(ctx context.Context, a *arena) {
	var b *backend
	for ctx.Err() == nil {
		if b == nil || rand.N(10) == 0 {
			if b != nil {
				b.Close()
			}
			b = s.openQuery(backends.Options{Timeout: 2 * time.Second}, "")
		}
		ttl := 300*time.Millisecond + rand.N(700*time.Millisecond)
		r := backends.Request{Key: a.key, Owner: backends.NewOwner(), Holder: "fighter", Host: "host", TTL: ttl, Slots: a.slots}
		if l, sent := a.take(ctx, b, r); l != nil {
			a.use(ctx, l, sent, ttl)
		}
	}
	if b != nil {
		b.Close()
	}
}

// take asks until the lease is granted, as package main does. It gives up now and then, as if killed while waiting.
func (a *arena) take(ctx context.Context, b *backend, r backends.Request) (backends.Lease, time.Duration) {
	for try := 0; ctx.Err() == nil && try < 20; try++ {
		sent := boottime.Now()
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		l, err := b.Acquire(bounded, r)
		cancel()
		var held *backends.HeldError
		switch {
		case err == nil && boottime.Now()-sent < r.TTL-l.Grant().Drift:
			a.count(&a.grants)
			return l, sent
		case err == nil:
		case errors.As(err, &held):
			a.count(&a.refused)
			waiting, cancel := context.WithTimeout(ctx, rand.N(2*time.Second))
			_ = b.Wait(waiting, r)
			cancel()
		default:
			a.count(&a.unknown)
			pause(ctx, rand.N(50*time.Millisecond))
		}
	}
	_ = b.Abandon(context.WithoutCancel(ctx), r)
	return nil, 0
}

// enough is how many grants say something.
const enough = 3

func (a *arena) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grants < enough
}

func (a *arena) count(n *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
}

// use relies on the lease until the deadline that a holder computes for itself, with a renewal now and then; or stops
// without a word, which is relying on it to the last moment.
func (a *arena) use(ctx context.Context, l backends.Lease, sent, ttl time.Duration) {
	g := l.Grant()
	deadline := sent + ttl - g.Drift
	from := boottime.Now()
	crash := rand.N(5) == 0
	for ends := from + rand.N(2*ttl); ; {
		a.update(g.Slot, deadline)
		if left := deadline - boottime.Now(); left <= 0 {
			break
		} else if crash {
			a.count(&a.crashes)
			time.Sleep(left)
			break
		} else if boottime.Now() >= ends {
			a.leave(g, from, min(boottime.Now(), deadline))
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			_ = l.Release(bounded, backends.End{Outcome: backends.Succeeded})
			return
		}
		asked := boottime.Now()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline-asked)
		err := l.Renew(bounded, ttl)
		cancel()
		switch {
		case err == nil && boottime.Now() < deadline:
			deadline = asked + ttl - g.Drift
		case errors.Is(err, backends.ErrLost):
			a.count(&a.told)
			a.leave(g, from, min(boottime.Now(), deadline))
			return
		}
	}
	a.leave(g, from, deadline)
}

// update reads, waits and writes one more. Each is done only while the holder may rely on the lease.
func (a *arena) update(slot int, deadline time.Duration) {
	a.mu.Lock()
	read, ok := a.counter[slot], boottime.Now() < deadline
	a.mu.Unlock()
	time.Sleep(rand.N(40 * time.Millisecond))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !ok || boottime.Now() >= deadline {
		return
	}
	if a.counter[slot] != read {
		a.lost++
	}
	a.counter[slot] = read + 1
	a.writes[slot]++
}

func (a *arena) leave(g backends.Grant, from, to time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans = append(a.spans, span{from, to, g.Token, g.Slot})
}

// judge looks for two who relied on one slot at once, and for tokens out of order.
func (a *arena) judge(t *testing.T, length time.Duration) {
	t.Helper()
	overlaps := 0
	for slot := range a.slots {
		mine := slices.DeleteFunc(slices.Clone(a.spans), func(s span) bool { return s.slot != slot })
		slices.SortFunc(mine, func(x, y span) int { return int(x.from - y.from) })
		for i := 1; i < len(mine); i++ {
			x, y := mine[i-1], mine[i]
			if y.from < x.to {
				overlaps++
				t.Errorf("%s, slot %d: token %d was relied on until %v, token %d from %v on", a.key, slot, x.token, x.to, y.token, y.from)
			}
			if y.token <= x.token {
				t.Errorf("%s, slot %d: token %d after %d", a.key, slot, y.token, x.token)
			}
		}
		if a.counter[slot] != a.writes[slot] {
			t.Errorf("%s, slot %d: the sum is %d after %d updates", a.key, slot, a.counter[slot], a.writes[slot])
		}
	}
	if a.lost > 0 {
		t.Errorf("%s: %d updates were lost", a.key, a.lost)
	}
	if a.grants < enough {
		t.Errorf("%s: only %d grants in %v", a.key, a.grants, length)
	}
	text := fmt.Sprintf("%s: %d grants, %d crashes, %d refusals, %d unknown answers, %d told of a loss, %v updates; %d overlaps, %d lost updates",
		a.key, a.grants, a.crashes, a.refused, a.unknown, a.told, a.writes, overlaps, a.lost)
	t.Log(text)
}
