package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// spread is another host's way to the topic, with partitions=n.
func (s *store) spread(n int) *backend {
	s.Helper()
	b := s.openQuery(backends.Options{Timeout: 30 * time.Second}, fmt.Sprintf("?partitions=%d", n))
	s.Cleanup(func() { b.Close() })
	return b
}

// differs tells that err is about partitions=n, and for good.
func differs(err error, n int) bool {
	return backends.IsPermanent(err) && strings.Contains(err.Error(), fmt.Sprintf("other hosts use partitions=%d", n))
}

// elsewhere is a key that n partitions put into another one than partition 0.
func elsewhere(b *backend) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); b.log(key).id != 0 {
			return key
		}
	}
}

var ways = map[string]func(ctx context.Context, b *backend, key string) error{
	"acquire": func(ctx context.Context, b *backend, key string) error {
		_, err := b.Acquire(ctx, request(key, 2))
		return err
	},
	"pause":  func(ctx context.Context, b *backend, key string) error { return b.Pause(ctx, key, backends.Pause{}) },
	"init":   func(ctx context.Context, b *backend, _ string) error { return b.Init(ctx) },
	"status": func(ctx context.Context, b *backend, key string) error { _, err := b.Status(ctx, key); return err },
	"history": func(ctx context.Context, b *backend, key string) error {
		_, err := b.History(ctx, backends.Query{})
		return err
	},
	"follow": func(ctx context.Context, b *backend, key string) error {
		return b.Follow(ctx, backends.Query{}, func(backends.Record) error { return nil })
	},
}

// A host that says another number of partitions, or forgets to, would look for a key in another log than those who hold
// it. Whatever it asks for it is refused, whichever keys have been used, and also where partitions have been added.
func TestHostsThatDifferInPartitions(t *testing.T) {
	for name, create := range map[string]func(s *store, right *backend){
		"made by init": func(s *store, right *backend) {
			if err := right.Init(s.Context()); err != nil {
				s.Fatal(err)
			}
		},
		"made by other means": func(s *store, right *backend) {
			s.cluster.CreateTopic(s.topic, 3, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := bare(t, cluster(t, 1))
			right := s.spread(3)
			create(s, right)
			key := elsewhere(right)
			l, err := right.Acquire(t.Context(), request(key, 1))
			if err != nil {
				t.Fatal(err)
			}
			s.cluster.AddPartitions(s.topic, 7)
			for _, n := range []int{1, 2, 5, 7} {
				for what, ask := range ways {
					if err := ask(t.Context(), s.spread(n), key); !differs(err, 3) {
						t.Errorf("%s with partitions=%d: %v", what, n, err)
					}
				}
			}
			expect(t, doctor(t, s.behind), "partitions", false, "other hosts use partitions=3", "say partitions=3")
			if err := l.Renew(t.Context(), longLease); err != nil {
				t.Errorf("who was there first: %v", err)
			}
			s.refused(s.spread(3), request(key, 3))
			if all := doctor(t, right); !all["partitions"].OK {
				t.Errorf("%+v", all["partitions"])
			}
		})
	}
}

// Of hosts that come to an untouched topic at one instant, with different numbers, one number wins, for all.
func TestFirstNumberOfPartitionsWins(t *testing.T) {
	s := bare(t, cluster(t, 1))
	s.cluster.CreateTopic(s.topic, 3, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	won := [4]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 24 {
		n := 1 + i%3
		b := s.spread(n)
		wg.Go(func() {
			_, err := b.Acquire(t.Context(), request(fmt.Sprint(i), i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won[n]++
			} else if !strings.Contains(err.Error(), "other hosts use") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for n := 1; n <= 3; n++ {
		if won[n] != 0 && won[n] != 8 {
			t.Errorf("by number, so many got what they asked for: %v", won)
		}
	}
	if won[1]+won[2]+won[3] != 8 {
		t.Errorf("by number, so many got what they asked for: %v", won)
	}
}

// Retention may take the first record away, while another partition is in use.
func TestNumberOfPartitionsIsSaidAgain(t *testing.T) {
	s := bare(t, cluster(t, 1))
	right := s.spread(3)
	if err := right.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	end, err := right.client.End(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster.Cut(s.topic, 0, end)
	if _, err := s.spread(3).Acquire(t.Context(), request(elsewhere(right), 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.behind.Acquire(t.Context(), request(elsewhere(right), 2)); !differs(err, 3) {
		t.Errorf("without partitions=: %v", err)
	}
}

// Too few partitions are told of whatever the key, not for those keys alone that are in one that is missing.
func TestTooFewPartitionsForAllKeys(t *testing.T) {
	s := bare(t, cluster(t, 1))
	s.cluster.CreateTopic(s.topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	b := s.spread(2)
	for i := range 8 {
		_, err := b.Acquire(t.Context(), request(fmt.Sprint(i), i))
		if !backends.IsPermanent(err) || !strings.Contains(err.Error(), "1 partition, and partitions=2") {
			t.Errorf("key %d: %v", i, err)
		}
	}
	if n := len(s.records()); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// Nothing is appended to a topic that is somebody else's, whatever the operation.
func TestNothingIsAppendedToAWrongTopic(t *testing.T) {
	s := bare(t, cluster(t, 1))
	s.cluster.CreateTopic(s.topic, 1, map[string]string{"message.timestamp.type": "CreateTime"})
	k := s.cluster.Nodes[0]
	k.Tool("one\ntwo\n", "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", "$BROKER", "--topic", s.topic)
	ctx := t.Context()
	b := s.behind
	for what, err := range map[string]error{
		"pause":   b.Pause(ctx, "k", backends.Pause{}),
		"record":  b.Record(ctx, backends.Record{Key: "k", Outcome: backends.Skipped}),
		"clock":   func() error { _, err := b.Now(ctx); return err }(),
		"attach":  func() error { _, err := b.Attach(ctx, "k", 1); return err }(),
		"init":    b.Init(ctx),
		"acquire": func() error { _, err := b.Acquire(ctx, request("k", 1)); return err }(),
	} {
		if !backends.IsPermanent(err) || !strings.Contains(err.Error(), "message.timestamp.type is CreateTime") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.Break(ctx, "k", 0, "me"); err == nil {
		t.Error("unlock of a key in a wrong topic")
	}
	if err := b.Resume(ctx, "k"); err == nil {
		t.Error("resume of a key in a wrong topic")
	}
	doctor(t, b)
	if n := len(s.records()); n != 2 {
		t.Errorf("%d records are there, two of them somebody else's", n)
	}
	// The settings may fit by chance.
	s.cluster.SetTopic(s.topic, setTimestamps, "LogAppendTime")
	s.cluster.SetTopic(s.topic, setRetention, "-1")
	for deadline := time.Now().Add(time.Minute); ; {
		if all := doctor(t, b); all[setTimestamps].OK && all[setRetention].OK || time.Now().After(deadline) {
			break // brokers learn of a changed setting a moment later
		}
	}
	if n := len(s.records()); n != 2 {
		t.Errorf("the doctor wrote into a topic with nothing of lockrun's: %d records", n)
	}
}

// Who may make the topic need not be who writes into it.
func TestInitWithoutTheRightToWrite(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}, ACL: true})
	s := bare(t, k.Cluster())
	s.cluster.CreateTopic(s.topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	s.cluster.Allow("ann", s.topic, testserver.AllowRead, testserver.AllowDescribeConfigs)
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = s.behind.Init(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
			break // brokers learn of a right a moment later
		}
	}
	if err != nil {
		t.Error(err)
	}
}
