package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// proxied is a store behind a proxy.
func proxied(t *testing.T) (*store, *testserver.Proxy) {
	t.Helper()
	k := testserver.StartKafka(t, testserver.KafkaConfig{Proxied: true})
	s := &store{TB: t, cluster: k.Cluster(), topic: "locks"}
	s.behind = s.open(backends.Options{Timeout: time.Minute})
	if err := s.behind.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, k.Proxy
}

// CON-02: the broker has appended the record, and its reply does not arrive. The own lease is recognised at once, in the
// log: nobody has to ask again, and it is never taken for somebody else's.
func TestALostReplyIsFoundInTheLog(t *testing.T) {
	s, p := proxied(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	take := func(key string) backends.Lease {
		t.Helper()
		l, err := b.Acquire(t.Context(), request(key, 1))
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		return l
	}
	take("warm")
	lost := p.LoseReply(`"type":"LOCK"`, testserver.CloseIt)
	l := take("k")
	if !lost() {
		t.Error("no reply was lost")
	}
	if st := s.state("k"); len(st.Leases) != 1 || st.Leases[0].Token != l.Grant().Token {
		t.Errorf("granted %+v, and the log says %s", l.Grant(), st.Text())
	}
	lost = p.LoseReply(`"type":"HEARTBEAT"`, testserver.CloseIt)
	if err := l.Renew(t.Context(), longLease); err != nil || !lost() {
		t.Errorf("Renew: %v; the reply was lost: %v", err, lost())
	}
	lost = p.LoseReply(`"type":"RELEASE"`, testserver.CloseIt)
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil || !lost() {
		t.Errorf("Release: %v; the reply was lost: %v", err, lost())
	}
	if st := s.state("k"); len(st.Leases) != 0 {
		t.Errorf("after the release the log says %s", st.Text())
	}
}

// A new leader may not know yet how far its followers are, and shows less than what the one before it has acknowledged. Who
// has taken a lease under that one is not told that it is lost.
func TestALeaderThatShowsLessThanWasAcknowledged(t *testing.T) {
	s, p := proxied(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	b.c.justNow = 0
	l := s.take(b, request("k", 1))
	log := b.log("k")
	if log.ahead == nil || log.book.Next() > log.written {
		t.Fatal("the LOCK has been read back already, so that this shows nothing")
	}
	log.ahead.Drop() // as where the leader dies at once
	log.ahead = nil
	hidden := p.AlterReply("\x00\x01\x00\x0b", func(fetched []byte) bool { // Fetch
		// A broker sends the records apart from what it has to say of them.
		if len(fetched) < 4 || len(fetched) < 4+int(binary.BigEndian.Uint32(fetched)) {
			return false
		}
		highWater := 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(s.topic) + 4 + 4 + 2 // behind its size, and what it begins with
		binary.BigEndian.PutUint64(fetched[highWater:], uint64(log.book.Next()))
		records := highWater + 8 + 8 + 8 + 4 + 4 + 4
		binary.BigEndian.PutUint64(fetched[records:], 0) // the offset, which no checksum covers: one that was not asked for
		return true
	})
	if err := l.Renew(t.Context(), longLease); err != nil || !hidden() {
		t.Errorf("Renew: %v; the LOCK was hidden: %v", err, hidden())
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// A LOCK that was sent, and given up, may be appended long after. What was called off does not come back.
func TestALockThatArrivesLateIsVoid(t *testing.T) {
	s := newStore(t, 1)
	b := s.open(backends.Options{})
	r := request("k", 1)
	l := b.log("k")
	late := lockEntry(r)
	d, err := l.prepare(t.Context(), late, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.lateMayCome(r.Owner) // as after an append without a reply
	if err := b.Abandon(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Produce(t.Context(), 0, d.key, d.value, wire.Header{Name: ledger.HeaderName, Value: d.carry}); err != nil {
		t.Fatal(err)
	}
	if st := s.state("k"); len(st.Leases) != 0 {
		t.Errorf("the log says %s", st.Text())
	}
	if _, err := b.Acquire(t.Context(), r); err != nil {
		t.Errorf("Acquire of the same owner, asked anew: %v", err)
	}
}

// A beat is on its way when the log is cut, and comes after somebody else has been granted the lease. It takes nothing back.
func TestABeatThatArrivesAfterACut(t *testing.T) {
	s := newStore(t, 1)
	b, other := s.open(backends.Options{}), s.open(backends.Options{})
	old, err := b.Acquire(t.Context(), request("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	beat := &ledger.Entry{Kind: ledger.Heartbeat, Key: "k", Owner: request("k", 1).Owner, Token: old.Grant().Token, TTL: ms(longLease)}
	d, err := b.log("k").prepare(t.Context(), beat, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster.Cut(s.topic, 0, -1)
	rival, err := other.Acquire(t.Context(), request("k", 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Produce(t.Context(), 0, d.key, d.value, wire.Header{Name: ledger.HeaderName, Value: d.carry}); err != nil {
		t.Fatal(err)
	}
	if st := s.state("k"); len(st.Leases) != 1 || st.Leases[0].Token != rival.Grant().Token {
		t.Errorf("the rival was granted %+v, and the log says %s", rival.Grant(), st.Text())
	}
	if err := old.Renew(t.Context(), longLease); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew of the lease that is gone: %v", err)
	}
	if err := rival.Renew(t.Context(), longLease); err != nil {
		t.Errorf("Renew of the rival's: %v", err)
	}
}

// All records of one key are cut off, and those of others stay. Who holds that key is told, and does not bring it back: whoever
// looks for it by then finds nothing.
func TestACutThatTakesOneKey(t *testing.T) {
	s := newStore(t, 1)
	a, other := s.open(backends.Options{}), s.open(backends.Options{})
	l := s.take(a, request("k", 1))
	s.take(other, request("other", 2))
	var end int64
	s.again("look", func(ctx context.Context) (err error) {
		if _, err = a.Status(ctx, "other"); err == nil { // has read all there is
			end, err = a.client.End(ctx, 0)
		}
		return err
	})
	s.cluster.Cut(s.topic, 0, end-1)
	s.again("renew", func(ctx context.Context) error {
		if err := l.Renew(ctx, longLease); !errors.Is(err, backends.ErrLost) {
			return err
		}
		return nil
	})
	if st := s.state("k"); st.Known() {
		t.Errorf("the log says %s", st.Text())
	}
	s.take(other, request("k", 3))
}

// CON-07: a connection that was idle for long has been dropped on the way. Nobody notices.
func TestDroppedConnectionsAreNotNoticed(t *testing.T) {
	s, p := proxied(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	l, err := b.Acquire(t.Context(), request("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.Reset()
		if err := l.Renew(t.Context(), longLease); err != nil {
			t.Errorf("Renew: %v", err)
		}
	}
	p.Reset()
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// The topic is cut below what still counts, while a lease is held and beats go on: the holder keeps it, and nobody else
// gets in.
func TestRetentionInTheMiddleOfALease(t *testing.T) {
	s := newStore(t, 1)
	a, b := s.open(backends.Options{}), s.open(backends.Options{})
	l, err := a.Acquire(t.Context(), request("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if err := l.Renew(t.Context(), longLease); err != nil {
			t.Fatalf("beat %d: %v", n, err)
		}
		if n%2 == 0 {
			continue
		}
		end, err := a.client.End(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		s.cluster.Cut(s.topic, 0, end-1)
		var held *backends.HeldError
		for _, host := range []*backend{b, s.open(backends.Options{})} {
			if _, err := host.Acquire(t.Context(), request("k", 2)); !errors.As(err, &held) || held.Token != l.Grant().Token {
				t.Errorf("after cut %d: %v", n, err)
			}
		}
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// Many partitions hold all keys, and each key in one of them only.
func TestPartitions(t *testing.T) {
	s := &store{TB: t, cluster: cluster(t, 1), topic: "partitions"}
	open := func() *backend {
		b := s.openQuery(backends.Options{}, "?partitions=4")
		t.Cleanup(func() { b.Close() })
		return b
	}
	a, b := open(), open()
	if err := a.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	used := map[int]bool{}
	for i, key := range keys {
		used[a.log(key).id] = true
		if _, err := a.Acquire(t.Context(), request(key, i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(used) < 3 {
		t.Errorf("partitions used: %v", used)
	}
	s.cluster.AddPartitions(s.topic, 7)
	c := open()
	for i, key := range keys {
		var held *backends.HeldError
		for _, host := range []*backend{b, c} {
			if _, err := host.Acquire(t.Context(), request(key, 100+i)); !errors.As(err, &held) {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
	all, err := b.Status(t.Context())
	var got []string
	for _, st := range all {
		got = append(got, st.Key)
	}
	if err != nil || !slices.Equal(got, keys) {
		t.Errorf("status tells of %q, %v", got, err)
	}
	if h, err := b.History(t.Context(), backends.Query{}); err != nil || len(h) != 0 {
		t.Errorf("history %+v, %v", h, err)
	}
}

// A record of a format to come may mean anything.
func TestANewerFormatStopsThisOne(t *testing.T) {
	s := newStore(t, 1)
	if _, err := s.behind.client.Produce(t.Context(), 0, []byte("x"), []byte(`{"lockrun":2,"type":"LEASE"}`)); err != nil {
		t.Fatal(err)
	}
	end, err := s.behind.client.End(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.open(backends.Options{}).Acquire(context.Background(), request("k", 1))
	if !errors.Is(err, ledger.ErrNewer) || !backends.IsPermanent(err) || !strings.Contains(err.Error(), fmt.Sprintf("partition 0: the record at offset %d: ", end-1)) {
		t.Errorf("Acquire: %v", err)
	}
	// The way out where it was a mistake: the log is cut behind it.
	s.cluster.Cut(s.topic, 0, end)
	if l, err := s.open(backends.Options{}).Acquire(t.Context(), request("k", 1)); err != nil || l.Grant().Token <= end {
		t.Errorf("after the cut: %+v, %v", l, err)
	}
}

// A topic that is deleted and made again begins at offset 0 and knows nothing. Tokens rise all the same, and who held a lease
// is told that it is lost.
func TestTokensRiseInATopicThatIsMadeAgain(t *testing.T) {
	s := newStore(t, 1)
	b := s.open(backends.Options{Timeout: time.Minute})
	for i := range 3 {
		l := s.take(b, request("k", i))
		s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) })
	}
	old := s.take(b, request("k", 3))
	topics := "kafka-topics.sh --bootstrap-server " + s.cluster.Nodes[0].Inner()
	s.script(topics + " --delete --topic " + s.topic + "; while " + topics + " --list | grep -qx " + s.topic + "; do :; done")
	other := s.open(backends.Options{Timeout: time.Minute})
	if err := other.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := s.take(other, request("k", 4)); l.Grant().Token <= old.Grant().Token {
		t.Errorf("token %d after %d", l.Grant().Token, old.Grant().Token)
	}
	err := old.Renew(t.Context(), longLease)
	for deadline := time.Now().Add(time.Minute); isUnknown(err) && time.Now().Before(deadline); {
		err = old.Renew(t.Context(), longLease)
	}
	if !errors.Is(err, backends.ErrLost) {
		t.Errorf("the beat of who held it: %v", err)
	}
}
