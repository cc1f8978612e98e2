package firestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// TestExchanges counts requests, each of them a round trip.
func TestExchanges(t *testing.T) {
	m := newMeddler(t)
	b := opened(t, m.through(t), backends.Options{})
	release(t, acquire(t, b, request("k"))) // the first release of a key also notes when it was cleaned up
	m.verbs()
	want := func(what string, verbs ...string) {
		t.Helper()
		got := m.verbs()
		slices.Sort(got)
		slices.Sort(verbs)
		if !slices.Equal(got, verbs) {
			t.Errorf("%s took %v, want %v", what, got, verbs)
		}
	}
	l := acquire(t, b, request("k"))
	want("an acquire of a free key", "batchGet", "commit")
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
	want("a renewal", "commit")
	if _, err := b.Acquire(context.Background(), request("k")); err == nil {
		t.Error("a held key was granted")
	}
	want("a refusal", "batchGet")
	r := request("k")
	r.Last = true
	_, _ = b.Acquire(context.Background(), r)
	got := m.verbs()
	if len(got) != 2 && !slices.Contains(got, "runAggregationQuery") { // once in a hundred it cleans up
		t.Errorf("a refusal that is recorded took %v", got)
	}
	for m.verbs(); ; m.verbs() {
		release(t, l)
		if got := m.verbs(); len(got) == 1 { // once in a hundred it cleans up
			break
		} else if !slices.Contains(got, "runAggregationQuery") {
			t.Fatalf("a release took %v", got)
		}
		l = acquire(t, b, request("k"))
	}

	s := &store{t, "", b}
	acquire(t, b, request("k"))
	s.expire("k")
	m.verbs()
	acquire(t, b, request("k"))
	want("a takeover", "batchGet", "commit")
	r = request("other")
	r.RunID = "r1"
	release(t, acquire(t, b, r)) // the key's first
	r.RunID, r.Owner = "r2", backends.NewOwner()
	l = acquire(t, b, r)
	want("two runs with a run id, without the last release", "batchGet", "commit", "commit", "batchGet", "commit")
	release(t, l)
	if got := m.verbs(); len(got) != 1 && !slices.Contains(got, "runAggregationQuery") {
		t.Errorf("a release with a run id took %v", got)
	}
	_, err := b.Acquire(context.Background(), r)
	if done := (*backends.DoneError)(nil); !errors.As(err, &done) {
		t.Errorf("a run that is done: %v", err)
	}
	want("being told that a run is done", "batchGet")
}

// TestLostReply is CON-02: the lease is recognised as our own, or given back; it is never taken for another's.
func TestLostReply(t *testing.T) {
	proxy := testserver.StartProxy(t, emulatorFor(t).Addr())
	url := freshURL(t)
	b := opened(t, strings.Replace(url, emulatorFor(t).Addr(), proxy.Addr(), 1), backends.Options{})
	direct := opened(t, url, backends.Options{})
	for i, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} {
		key := fmt.Sprint("k", i)
		r := request(key)
		lost := proxy.LoseReply(":commit", after)
		_, err := b.Acquire(within(t, 2*time.Second), r)
		if !lost() {
			t.Fatal("no reply was lost")
		}
		if err != nil {
			unknown(t, err, false)
		}
		first := stateOf(t, direct, key)
		if first.State != backends.Held {
			t.Fatalf("the lost reply was that of %+v", first)
		}
		l := acquire(t, b, r)
		if g := l.Grant(); g.Token != first.Token || g.Attempt != 1 || g.Takeover {
			t.Errorf("granted %+v again, the lease had token %d", g, first.Token)
		}
		lost = proxy.LoseReply(":commit", after)
		if err := l.Renew(within(t, 2*time.Second), time.Minute); err != nil {
			unknown(t, err, false)
			if err := l.Renew(context.Background(), time.Minute); err != nil {
				t.Errorf("Renew again: %v", err)
			}
		}
		if !lost() {
			t.Error("no reply to a renewal was lost")
		}
		end := backends.End{Outcome: backends.Failed}
		lost = proxy.LoseReply(":commit", after)
		if err := l.Release(within(t, 2*time.Second), end); err != nil {
			unknown(t, err, false)
			if err := l.Release(context.Background(), end); err != nil {
				t.Errorf("Release again: %v", err)
			}
		}
		if !lost() {
			t.Error("no reply to a release was lost")
		}
		r = request(key)
		lost = proxy.LoseReply(":commit", after)
		if _, err = b.Acquire(within(t, 2*time.Second), r); err != nil {
			unknown(t, err, false)
		}
		if err := b.Abandon(context.Background(), r); err != nil || !lost() {
			t.Errorf("Abandon: %v", err)
		}
		if s := stateOf(t, direct, key); s.State != backends.Free {
			t.Errorf("after an abandoned acquire the key is %s", s.State)
		}
		h, err := direct.History(context.Background(), backends.Query{Key: key})
		if err != nil || len(h) != 1 || h[0].Outcome != backends.Failed {
			t.Errorf("history %+v, %v", h, err)
		}
	}
}

// TestIdleConnections is CON-07: something between us and the server drops connections that idle.
func TestIdleConnections(t *testing.T) {
	proxy := testserver.StartProxy(t, emulatorFor(t).Addr())
	b := opened(t, strings.Replace(freshURL(t), emulatorFor(t).Addr(), proxy.Addr(), 1), backends.Options{})
	l := acquire(t, b, request("k"))
	proxy.DropIdle(time.Second)
	before := proxy.Accepted()
	eventually(t, "the idle connection being dropped", func() bool {
		if err := l.Renew(context.Background(), time.Minute); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		time.Sleep(1100 * time.Millisecond) // longer than the proxy lets a connection idle
		return proxy.Accepted() > before
	})
	release(t, l)
}

// Statuses that mean "ask again", as Google writes them.
var busyAnswers = []plan{
	{status: 409, text: `{"error":{"code":409,"message":"Too much contention on these documents. Please try again.","status":"ABORTED"}}`},
	{status: 503, text: `{"error":{"code":503,"message":"The service is currently unavailable.","status":"UNAVAILABLE"}}`},
	{status: 429, text: `{"error":{"code":429,"message":"Quota exceeded.","status":"RESOURCE_EXHAUSTED"}}`},
	{status: 502, text: `<html><title>Bad Gateway</title></html>`},
}

// TestBusyServer: what the server is too busy for is asked again, and nothing happens twice.
func TestBusyServer(t *testing.T) {
	m := newMeddler(t)
	for _, after := range []bool{false, true} {
		for _, p := range busyAnswers {
			b := opened(t, m.through(t), backends.Options{})
			busy := func() {
				p := p
				p.verb, p.n, p.after = "commit", 2, after
				m.plan(p)
			}
			if after && p.status == 409 {
				continue // ABORTED says for certain that nothing was done
			}
			busy()
			l := acquire(t, b, request("k"))
			busy()
			if err := l.Renew(context.Background(), time.Minute); err != nil {
				t.Errorf("%d: Renew: %v", p.status, err)
			}
			busy()
			release(t, l)
			m.plan(plan{verb: "batchGet", n: 2, status: p.status, text: p.text})
			if s := stateOf(t, b, "k"); s.State != backends.Free || s.Token != l.Grant().Token {
				t.Errorf("%d: %+v", p.status, s)
			}
			h, err := b.History(context.Background(), backends.Query{})
			if err != nil || len(h) != 1 || h[0].Outcome != backends.Succeeded || h[0].Attempt != 1 {
				t.Errorf("%d: history %+v, %v", p.status, h, err)
			}
		}
	}
}

// TestOperatorsLostReply: what was done is not told as nothing to do, and whoever came afterwards is left alone.
func TestOperatorsLostReply(t *testing.T) {
	m := newMeddler(t)
	ctx := context.Background()
	for _, p := range busyAnswers[1:] {
		b := opened(t, m.through(t), backends.Options{})
		lose := func(then func()) {
			p := p
			p.verb, p.n, p.after, p.then = "commit", 1, true, then
			m.plan(p)
		}
		if err := b.Pause(ctx, "k", backends.Pause{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		lose(nil)
		if err := b.Resume(ctx, "k"); err != nil {
			t.Errorf("%d: Resume: %v", p.status, err)
		}
		if err := b.Resume(ctx, "k"); !errors.Is(err, backends.ErrNotHeld) {
			t.Errorf("%d: Resume of what is not paused: %v", p.status, err)
		}
		for _, byToken := range []bool{true, false} {
			first := acquire(t, b, request("k")).Grant().Token
			var next backends.Lease
			lose(func() { next = acquire(t, b, request("k")) })
			token := first
			if !byToken {
				token = 0
			}
			if broken, err := b.Break(ctx, "k", token, "broken by ann"); err != nil || len(broken) != 1 || broken[0].Token != first {
				t.Errorf("%d: Break of token %d: %+v, %v", p.status, first, broken, err)
			}
			if err := next.Renew(ctx, time.Minute); err != nil {
				t.Errorf("%d: the next holder's renewal: %v", p.status, err)
			}
			release(t, next)
			if _, err := b.Break(ctx, "k", token, "broken by ann"); !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("%d: Break of what is not held: %v", p.status, err)
			}
		}
	}
}

// TestBusyForLong: it is not known, in the server's words, in time.
func TestBusyForLong(t *testing.T) {
	m := newMeddler(t)
	for _, p := range busyAnswers {
		b := opened(t, m.through(t), backends.Options{})
		p.n = 1 << 30
		m.mu.Lock()
		m.plans = []*plan{&p}
		m.mu.Unlock()
		began := time.Now()
		_, err := b.Acquire(within(t, 3*time.Second), request("k"))
		unknown(t, err, false)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// TestCrowd is CNC-04 and the bound: of thirty contenders at one instant one is granted, and all are told soon.
func TestCrowd(t *testing.T) {
	url := freshURL(t)
	const many = 30
	for round := range 3 {
		start := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		won, refused := 0, 0
		for range many {
			b := opened(t, url, backends.Options{Timeout: patience})
			wg.Go(func() {
				<-start
				r := request(fmt.Sprint("k", round))
				r.Last = true
				_, err := b.Acquire(context.Background(), r)
				mu.Lock()
				defer mu.Unlock()
				switch held := (*backends.HeldError)(nil); {
				case err == nil:
					won++
				case errors.As(err, &held) && held.Holder == "alpha":
					refused++
				default:
					t.Errorf("Acquire: %v", err)
				}
			})
		}
		began := time.Now()
		close(start)
		wg.Wait()
		took := time.Since(began)
		t.Logf("%d contenders were decided within %v", many, took)
		if won != 1 || refused != many-1 || took > patience {
			t.Errorf("%d won, %d were refused, within %v", won, refused, took)
		}
	}
}

// TestSlotsBeatTogether: holders of several slots share a document, so that their beats meet.
func TestSlotsBeatTogether(t *testing.T) {
	url := freshURL(t)
	var wg sync.WaitGroup
	for range 6 {
		b := opened(t, url, backends.Options{Timeout: patience})
		wg.Go(func() {
			r := request("k")
			r.Slots = 6
			l, err := b.Acquire(context.Background(), r)
			for range 5 {
				if err == nil {
					err = l.Renew(context.Background(), time.Minute)
				}
			}
			if err == nil {
				err = l.Release(context.Background(), backends.End{Outcome: backends.Failed})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b := opened(t, url, backends.Options{})
	h, err := b.History(context.Background(), backends.Query{})
	if err != nil || len(h) != 6 {
		t.Errorf("history %+v, %v", h, err)
	}
	if s := stateOf(t, b, "k"); s.State != backends.Free {
		t.Errorf("state %+v", s)
	}
}
