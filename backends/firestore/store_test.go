package firestore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/internal/testserver"
)

// shared is an emulator for all tests of this package that leave it as it is: starting one takes seconds.
var shared struct {
	sync.Mutex
	f        *testserver.Firestore
	cleanups []func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(shared.cleanups) - 1; i >= 0; i-- {
		shared.cleanups[i]()
	}
	os.Exit(code)
}

// lasting is a test whose cleanups wait for the end of all.
type lasting struct{ testing.TB }

func (l lasting) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }
func (l lasting) Failed() bool     { return false }

func emulatorFor(t testing.TB) *testserver.Firestore {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.f == nil {
		shared.f = testserver.StartFirestore(lasting{t})
	}
	return shared.f
}

var collections atomic.Int64

// freshURL names a collection that no other test uses.
func freshURL(t testing.TB) string {
	t.Helper()
	return emulatorFor(t).URL(fmt.Sprintf("t%d", collections.Add(1)))
}

func open(t testing.TB, url string, o backends.Options) *backend {
	t.Helper()
	u, err := backends.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(context.Background(), u, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*backend)
}

// opened is open with a cleanup.
func opened(t testing.TB, url string, o backends.Options) *backend {
	t.Helper()
	b := open(t, url, o)
	t.Cleanup(func() { b.Close() })
	return b
}

// store is a collection, and a way into it past the backend's operations.
type store struct {
	t   testing.TB
	url string
	b   *backend
}

func newStore(t testing.TB) *store {
	url := freshURL(t)
	return &store{t, url, opened(t, url, backends.Options{})}
}

func (s *store) suite() *backendtest.Store {
	return &backendtest.Store{Expire: s.expire, Remove: s.remove, Dump: s.dump, Foreign: s.foreign,
		Open: func(o backends.Options) backends.Backend { return open(s.t, s.url, o) }}
}

// rewrite changes a key's document behind everybody's back.
func (s *store) rewrite(key string, change func(l *leaseDocument)) {
	s.t.Helper()
	ctx := context.Background()
	for range 20 {
		snap, err := s.b.read(ctx, key, "", 0)
		if err != nil {
			s.t.Fatal(err)
		}
		change(snap.lease)
		writes := s.b.put(snap.lease, snap.now)
		if writes == nil {
			return
		}
		if _, err = s.b.commit(ctx, writes); err == nil {
			return
		} else if !isConflict(err) {
			s.t.Fatal(err)
		}
	}
	s.t.Fatalf("%q does not stand still", key)
}

// expire makes leases end just after they began; minimum holds stay.
func (s *store) expire(key string) {
	s.rewrite(key, func(l *leaseDocument) {
		for _, own := range l.slots {
			own.renewed, own.ttl = own.acquired, time.Microsecond
		}
	})
}

func (s *store) remove(key string) {
	s.rewrite(key, func(l *leaseDocument) { clear(l.slots) })
}

func (s *store) dump(key string) string { return s.contents(s.b.names.lease(key)) }

func (s *store) contents(name string) string {
	s.t.Helper()
	found, _, err := s.b.client.read(context.Background(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := json.Marshal(found[name])
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// foreign puts another program's document where the lease of key would be.
func (s *store) foreign(key string) func() string {
	s.t.Helper()
	name := s.b.names.lease(key)
	if _, err := s.b.commit(context.Background(), []write{{Update: &document{Name: name, Fields: fields{"title": str("not ours")}}}}); err != nil {
		s.t.Fatal(err)
	}
	return func() string { return s.contents(name) }
}

func TestConformance(t *testing.T) {
	emulatorFor(t)
	backendtest.Run(t, func(t *testing.T) *backendtest.Store { return newStore(t).suite() })
}
