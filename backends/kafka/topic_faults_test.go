package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// mend starts what the test has killed, for the tests that share the cluster.
func (s *store) mend() {
	s.Cleanup(func() {
		for _, b := range s.cluster.Nodes {
			if !b.Running() {
				b.Restart()
			}
		}
	})
}

// longLease is longer than any of these tests may take on a busy machine.
const longLease = 10 * time.Minute

// request is a long lease for an owner of that number.
func request(key string, n int) backends.Request {
	return backends.Request{Key: key, Owner: fmt.Sprintf("%032x", n), Holder: "h", Host: "h", PID: 1, TTL: longLease, Slots: 1}
}

// take acquires, and asks again as long as the answer is not known, as a run does.
func (s *store) take(b *backend, r backends.Request) backends.Lease {
	s.Helper()
	var l backends.Lease
	s.again("acquire", func(ctx context.Context) (err error) {
		l, err = b.Acquire(ctx, r)
		return err
	})
	return l
}

// again does something until its outcome is known, and ends the test where that is not success.
func (s *store) again(what string, do func(context.Context) error) {
	s.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := do(s.Context())
		switch {
		case err == nil:
			return
		case settled(err) && !isUnknown(err), time.Now().After(deadline):
			s.Fatalf("%s: %v", what, err)
		}
	}
}

func isUnknown(err error) bool {
	var e *backends.Error
	return errors.As(err, &e) && !e.Permanent
}

// refused tells that somebody else has the key.
func (s *store) refused(b *backend, r backends.Request) {
	s.Helper()
	s.again("being refused", func(ctx context.Context) error {
		_, err := b.Acquire(ctx, r)
		var held *backends.HeldError
		if errors.As(err, &held) {
			return nil
		}
		if err == nil {
			return backends.ErrNotHeld
		}
		return err
	})
}

// What a process will not rely on it does not take a lease in, and says how to change it.
func TestAcquireRefusesAWrongTopic(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"message.timestamp.type", "CreateTime"}, {"cleanup.policy", "compact"}, {"retention.ms", "60000"}, {"max.message.bytes", "10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bare(t, cluster(t, 1))
			settings := map[string]string{"message.timestamp.type": "LogAppendTime"}
			settings[c.name] = c.value
			s.cluster.CreateTopic(s.topic, 1, settings)
			_, err := s.behind.Acquire(t.Context(), request("k", 1))
			if !backends.IsPermanent(err) || !strings.Contains(err.Error(), c.name+" is ") || !strings.Contains(err.Error(), "kafka-configs.sh") {
				t.Errorf("got %v", err)
			}
			if n := len(s.records()); n != 0 {
				t.Errorf("it left %d records", n)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		s := bare(t, cluster(t, 1))
		_, err := s.behind.Acquire(t.Context(), request("k", 1))
		if !backends.IsPermanent(err) || !strings.Contains(err.Error(), "run lockrun init") || s.cluster.HasTopic(s.topic) {
			t.Errorf("got %v", err)
		}
	})
}

// A topic whose settings the user may not see is taken as it is, and still not without the broker's time.
func TestAcquireWithoutTheRightToSeeSettings(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}, ACL: true})
	for _, timestamps := range []string{"LogAppendTime", "CreateTime"} {
		s := bare(t, k.Cluster())
		s.cluster.CreateTopic(s.topic, 1, map[string]string{"message.timestamp.type": timestamps})
		s.cluster.Allow("ann", s.topic, testserver.AllowRead, testserver.AllowWrite)
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err = s.behind.Acquire(t.Context(), request("k", 1)); err == nil || !strings.Contains(err.Error(), "not authorized") {
				break // brokers learn of a right a moment later
			}
		}
		if timestamps == "LogAppendTime" && err != nil {
			t.Error(err)
		}
		if timestamps == "CreateTime" && (!backends.IsPermanent(err) || !strings.Contains(err.Error(), "LogAppendTime")) {
			t.Errorf("the producers' times: %v", err)
		}
	}
}

// A lease outlives its partition's leader, and all brokers.
func TestLeaseOutlivesBrokers(t *testing.T) {
	s := newStore(t, 3)
	k := s.cluster
	s.mend()
	other := s.open(backends.Options{Timeout: 30 * time.Second})
	l := s.take(s.behind, request("k", 1))
	k.InSync(s.topic, 0, 3)
	dead := k.Leader(s.topic, 0)
	dead.Kill()
	s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
	s.refused(other, request("k", 2))

	// With too few replicas nothing is taken or renewed, which is not the same as held or lost.
	k.SetTopic(s.topic, setInSync, "3")
	err := l.Renew(t.Context(), longLease)
	for err == nil {
		err = l.Renew(t.Context(), longLease) // the leader learns of the setting a moment later
	}
	if !isUnknown(err) || errors.Is(err, backends.ErrLost) || !strings.Contains(err.Error(), "start the brokers") {
		t.Errorf("renewed with two replicas of three: %v", err)
	}
	if _, err := other.Acquire(t.Context(), request("k", 3)); !isUnknown(err) {
		t.Errorf("acquired with two replicas of three: %v", err)
	}

	k.RestartAll()
	k.InSync(s.topic, 0, 3)
	s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
	s.refused(other, request("k", 4))
	s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Succeeded}) })
	if next := s.take(other, request("k", 5)); next.Grant().Token <= l.Grant().Token {
		t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
	}
}

// Partitions that are added split no lock: a key stays where the configured number puts it.
func TestPartitionsAreAdded(t *testing.T) {
	s := newStore(t, 1)
	for i := range 10 {
		s.take(s.behind, request(fmt.Sprint("k", i), i))
	}
	s.cluster.AddPartitions(s.topic, 5)
	other := s.open(backends.Options{})
	for i := range 10 {
		s.refused(other, request(fmt.Sprint("k", i), 100+i))
	}
}

// Where the log is cut before the last two records of the lease, the lease stays: the second of them says what was known
// after the first. Where it is cut to its end, the lease is lost and told so, and whoever is next has a greater token.
func TestTheLogIsCut(t *testing.T) {
	s := newStore(t, 1)
	l := s.take(s.behind, request("k", 1))
	for range 20 {
		s.take(s.behind, request("other", 2))
	}
	for range 2 {
		s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
	}
	log := s.behind.log("k")
	end, err := s.behind.client.End(t.Context(), log.id)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster.Cut(s.topic, log.id, end-2)
	s.refused(s.open(backends.Options{}), request("k", 3))
	s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
	s.remove("k")
	other := s.open(backends.Options{})
	next := s.take(other, request("k", 4))
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
	}
	for {
		err := l.Renew(t.Context(), longLease)
		if errors.Is(err, backends.ErrLost) {
			break
		}
		if err == nil || !isUnknown(err) {
			t.Fatalf("renewed what the log no longer tells: %v", err)
		}
	}
}
