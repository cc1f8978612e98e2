package kafka

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/internal/testserver"
)

// clusters are the brokers that tests share, by how many they are.
var clusters struct {
	sync.Mutex
	byCount map[int]*testserver.KafkaCluster
	ends    []func()
}

// cluster starts n brokers, or returns those that were started before. TestMain ends them.
func cluster(t *testing.T, n int) *testserver.KafkaCluster {
	t.Helper()
	clusters.Lock()
	defer clusters.Unlock()
	if clusters.byCount[n] == nil {
		if clusters.byCount == nil {
			clusters.byCount = map[int]*testserver.KafkaCluster{}
		}
		clusters.byCount[n] = testserver.StartKafkaCluster(sharedTB{t}, n, testserver.KafkaConfig{})
	}
	return clusters.byCount[n]
}

// sharedTB lets a server outlive the test that asked for it first.
type sharedTB struct{ testserver.TB }

// Cleanup keeps f for TestMain.
func (t sharedTB) Cleanup(f func()) { clusters.ends = append(clusters.ends, f) }

// Helper and Failed would otherwise be asked of a test that has ended.
func (t sharedTB) Helper()      {}
func (t sharedTB) Failed() bool { return false }

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(clusters.ends) - 1; i >= 0; i-- {
		clusters.ends[i]()
	}
	os.Exit(code)
}

// store is a fresh topic.
type store struct {
	testing.TB
	cluster *testserver.KafkaCluster
	topic   string
	behind  *backend // to do things behind lockrun's back
}

var topics atomic.Int32

// newStore creates a topic on a cluster of n brokers.
func newStore(t *testing.T, n int) *store {
	t.Helper()
	s := &store{TB: t, cluster: cluster(t, n), topic: fmt.Sprintf("locks-%d-%d", time.Now().UnixNano(), topics.Add(1))}
	s.behind = s.open(backends.Options{})
	if err := s.behind.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// open is another host's way to the topic, closed with the test.
func (s *store) open(o backends.Options) *backend {
	s.Helper()
	b := s.openQuery(o, "")
	s.Cleanup(func() { b.Close() })
	return b
}

func (s *store) openQuery(o backends.Options, query string) *backend {
	s.Helper()
	u, err := backends.ParseURL(s.cluster.URL(s.topic) + query)
	if err != nil {
		s.Fatal(err)
	}
	b, err := Open(context.Background(), u, o)
	if err != nil {
		s.Fatal(err)
	}
	return b.(*backend)
}

// state is what the log says of a key now.
func (s *store) state(key string) *ledger.State {
	s.Helper()
	var found *ledger.State
	err := s.behind.log(key).refresh(context.Background(), func(book *ledger.Book) error {
		st, err := book.State(key)
		if err == nil {
			found = st.Clone()
		}
		return err
	})
	if err != nil {
		s.Fatalf("reading the state of %q: %v", key, err)
	}
	return found
}

// expire writes a last, very short heartbeat for each live lease, and lets it run out.
func (s *store) expire(key string) {
	s.Helper()
	l := s.behind.log(key)
	for _, held := range s.state(key).Leases {
		if !held.Released {
			e := &ledger.Entry{Kind: ledger.Heartbeat, Key: key, Owner: held.Owner, Token: held.Token, TTL: 1}
			if _, err := l.do(context.Background(), e, nil); err != nil {
				s.Fatal(err)
			}
		}
	}
	for live := true; live; {
		now, err := l.askTime(context.Background())
		if err != nil {
			s.Fatal(err)
		}
		live = false
		for _, held := range s.state(key).Leases {
			live = live || held.Live(now)
		}
	}
}

// remove cuts off the log.
func (s *store) remove(key string) {
	s.Helper()
	l := s.behind.log(key)
	end, err := s.behind.client.End(context.Background(), l.id)
	if err != nil {
		s.Fatal(err)
	}
	s.cluster.Cut(s.topic, l.id, end)
}

// dump is what the log says of a key's leases. It has records that changed nothing, and their times are left out.
func (s *store) dump(key string) string {
	s.Helper()
	st := s.state(key)
	st.Time, st.Epoch = 0, 0
	return strings.ReplaceAll(st.Text(), ",", ",\n")
}

func (s *store) suite() *backendtest.Store {
	return &backendtest.Store{
		Open:   func(o backends.Options) backends.Backend { return s.openQuery(o, "") },
		Expire: s.expire, Remove: s.remove, Dump: s.dump,
	}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d brokers", n), func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, func(t *testing.T) *backendtest.Store { return newStore(t, n).suite() })
		})
	}
}
