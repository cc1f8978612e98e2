package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// moving is a store of three brokers, and what makes another one the leader, which a client that has read notices only when
// it asks the old one.
func moving(t *testing.T) (s *store, move func()) {
	t.Helper()
	s = newStore(t, 3)
	s.cluster.SetTopic(s.topic, setInSync, "1") // on a busy machine replicas fall behind
	return s, func() {
		t.Helper()
		s.cluster.InSync(s.topic, 0, 3)
		s.cluster.MoveLeader(s.topic, 0, s.cluster.Nodes[s.cluster.Leader(s.topic, 0).ID()%3])
	}
}

// The leader moves between the last reading and the append, of whatever kind. The old one refuses, without saying whether it
// has the record, and the operation goes on to the next leader. What is appended is there once.
func TestTheLeaderMovesBeforeAnAppend(t *testing.T) {
	s, move := moving(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	owner := request("k", 1).Owner
	var token int64
	for _, step := range []struct {
		entry func() *ledger.Entry
		did   ledger.Did
	}{
		{func() *ledger.Entry { return lockEntry(request("k", 1)) }, ledger.Granted},
		{func() *ledger.Entry { return lockEntry(request("k", 2)) }, ledger.Refused},
		{func() *ledger.Entry {
			return &ledger.Entry{Kind: ledger.Heartbeat, Key: "k", Owner: owner, Token: token, TTL: ms(longLease)}
		}, ledger.Renewed},
		{func() *ledger.Entry {
			return &ledger.Entry{Kind: ledger.Release, Key: "k", Owner: owner, Token: token, Outcome: backends.Succeeded}
		}, ledger.Ended},
		{func() *ledger.Entry { return lockEntry(request("k", 3)) }, ledger.Granted},
		{func() *ledger.Entry { return &ledger.Entry{Kind: ledger.Break, Key: "k"} }, ledger.Broken},
		{func() *ledger.Entry { return &ledger.Entry{Kind: ledger.Pause, Key: "k"} }, ledger.PauseSet},
		{func() *ledger.Entry { return &ledger.Entry{Kind: ledger.Resume, Key: "k"} }, ledger.PauseEnded},
		{func() *ledger.Entry {
			return &ledger.Entry{Kind: ledger.Note, Key: "k", Record: &backends.Record{Key: "k", Outcome: backends.Skipped}}
		}, ledger.Noted},
	} {
		e := step.entry()
		asked := 0
		a, err := b.log("k").do(t.Context(), e, func(*ledger.State) error {
			if asked++; asked == 1 {
				move()
			}
			return nil
		})
		if err != nil || a.res == nil || a.res.Did != step.did {
			t.Fatalf("%s: %+v, %v", e.Kind, a.res, err)
		}
		if asked < 2 {
			t.Errorf("%s was tried %d times: the old leader was not asked", e.Kind, asked)
		}
		if step.did == ledger.Granted {
			token = a.res.Lease.Token
		}
		if n := s.appended(e); n != 1 {
			t.Errorf("%s is in the log %d times", e.Kind, n)
		}
	}
}

// appended is how many records of e's kind and owner the log has.
func (s *store) appended(e *ledger.Entry) (n int) {
	for _, r := range s.records() {
		if d, err := ledger.Decode(ledgerRecord(r)); err == nil && d.Kind == e.Kind && d.Owner == e.Owner {
			n++
		}
	}
	return n
}

// A leader that was deposed may have the record all the same. Then it is found under the next, and not sent again.
func TestTheDeposedLeaderHasTheRecord(t *testing.T) {
	s := newStore(t, 1)
	b := s.open(backends.Options{Timeout: time.Minute})
	l := b.log("k")
	for _, there := range []bool{true, false} {
		e := lockEntry(request("k", 1))
		d, err := l.prepare(t.Context(), e, nil)
		if err != nil {
			t.Fatal(err)
		}
		if there {
			if _, err := l.send(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		a, err := l.lookFor(t.Context(), e, d.id, &wire.Error{Phase: wire.PhaseProduce, Err: wire.NotLeader, Sent: true})
		if there && (err != nil || a.res == nil || a.res.Did != ledger.Granted) {
			t.Errorf("the record is there: %+v, %v", a.res, err)
		}
		if _, gone := err.(notThere); !there && !gone {
			t.Errorf("the record is not there: %+v, %v", a.res, err)
		}
		if b.mayCome(e.Owner) {
			t.Errorf("the record is there (%v), and one is thought to be on its way", there)
		}
	}
}

// The leader moves between init's reading and its saying the number of partitions, which then may be there twice. One that
// is said twice is as good as once, and the first still decides.
func TestTheLeaderMovesUnderInit(t *testing.T) {
	s, move := moving(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	if _, err := b.client.End(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(context.Context) (int64, error){
		"declare": func(ctx context.Context) (int64, error) { n, err := b.declare(ctx); return int64(n), err },
		"clock":   b.logs[0].askTime,
		"doctor":  func(ctx context.Context) (int64, error) { d, err := b.clockOffset(ctx, 0); return int64(d), err },
	} {
		move()
		if _, err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	before := s.said()
	if before < 2 {
		t.Fatalf("the number is said %d times, want twice", before)
	}
	if err := s.open(backends.Options{}).Init(t.Context()); err != nil {
		t.Errorf("init after two: %v", err)
	}
	s.cluster.AddPartitions(s.topic, 3)
	if n, err := s.spread(3).declare(t.Context()); n != 1 || err != nil {
		t.Errorf("somebody said 3 after that, and was told %d, %v", n, err)
	}
	s.take(s.open(backends.Options{}), request("k", 1))
	if err := s.spread(3).Init(t.Context()); !differs(err, 1) {
		t.Errorf("init with another number: %v", err)
	}
	if n := s.said(); n <= before {
		t.Errorf("the number is said %d times, want more than %d", n, before)
	}
}

// said is how many CLOCKs say a number of partitions.
func (s *store) said() (n int) {
	for _, r := range s.records() {
		if e, err := ledger.Decode(ledgerRecord(r)); err == nil && e.Kind == ledger.Clock && e.Partitions > 0 {
			n++
		}
	}
	return n
}

// Answers to init's appends and to its creating the topic are lost.
func TestInitAfterLostReplies(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Proxied: true})
	s := bare(t, k.Cluster())
	created := k.Proxy.LoseReply("LogAppendTime", testserver.CloseIt)
	said := k.Proxy.LoseReply(`"type":"CLOCK"`, testserver.CloseIt)
	if err := s.behind.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !created() || !said() {
		t.Errorf("lost: of the topic %v, of the number %v", created(), said())
	}
	s.take(s.behind, request("k", 1))
}
