package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// beat renews as the heartbeat does, each exchange under its own short bound, until ok says that it is enough. It returns
// the last answer: nil, or ErrLost, which ends it at once.
func beat(t *testing.T, l backends.Lease, ok func(err error) bool) error {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := l.Renew(ctx, time.Minute)
		cancel()
		if errors.Is(err, backends.ErrLost) || ok(err) {
			return err
		}
		if time.Now().After(end) {
			t.Fatalf("the last of many renewals: %v", err)
		}
	}
}

func answered(err error) bool { return err == nil }

// TestSentinelFailover is FOV-01: a failover that breaks no connection is noticed by READONLY, and the new master knows no
// script. The lease is there, as the replicas had it.
func TestSentinelFailover(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Password: "watch"})
	url := s.URL() + "?sentinel_password_file=" + writeFile(t, "watch\n")
	b := opened(t, url+"&wait_replicas=2", backends.Options{})
	l := acquire(t, b, loose(request("k")))
	old := s.Master()
	next := s.Failover()
	next.Must("SCRIPT", "FLUSH")
	old.Must("SCRIPT", "FLUSH")
	if err := beat(t, l, answered); err != nil {
		t.Fatalf("Renew after a failover: %v", err)
	}
	held := refused(t, opened(t, url, backends.Options{}), request("k"))
	if held.Token != l.Grant().Token {
		t.Errorf("the new master has token %d, want %d", held.Token, l.Grant().Token)
	}

	// The master dies; with its last words on all replicas the lease survives. Only one replica is left then.
	if l, err := opened(t, url, backends.Options{}).Attach(context.Background(), "k", l.Grant().Token); err != nil {
		t.Fatal(err)
	} else {
		survive(t, s, next, l)
	}
}

func survive(t *testing.T, s *testserver.Sentinels, next *testserver.Redis, l backends.Lease) {
	t.Helper()
	next.Kill()
	s.NewMaster(next)
	if err := beat(t, l, answered); err != nil {
		t.Fatalf("Renew after the master's death: %v", err)
	}
	eventually(t, "the release", func() bool {
		return l.Release(within(t, time.Second), backends.End{Outcome: backends.Succeeded}) == nil
	})
}

// TestDeposedMaster: a master that the Sentinels have lost goes on answering. Its holder is told at the next beat.
func TestDeposedMaster(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{})
	first := acquire(t, opened(t, s.URL()+"?wait_replicas=2", backends.Options{}), loose(request("k")))
	b := opened(t, s.URL(), backends.Options{}) // there will be one replica only
	l, err := b.Attach(context.Background(), "k", first.Grant().Token)
	if err != nil {
		t.Fatal(err)
	}
	old := s.Master()
	for _, line := range strings.Split(old.Must("CLIENT", "LIST").(string), "\n") {
		if strings.Contains(line, "name=sentinel-") {
			old.Must("CLIENT", "KILL", "ID", strings.TrimPrefix(strings.Fields(line)[0], "id="))
		}
	}
	old.Must("CONFIG", "SET", "requirepass", "nobody-knows") // connections that are open already go on
	s.NewMaster(old)
	c := b.(*backend).c
	if n, err := s.NewMaster(old).Do("HDEL", c.names("k").lease, "s0"); err != nil || n != int64(1) {
		t.Fatalf("the new master had %v leases, %v", n, err)
	}
	if err := beat(t, l, answered); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
}

// TestSentinelRefusals: Sentinels that are away, know no such master, or want a password.
func TestSentinelRefusals(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Replicas: 1, Password: secret})
	file := "?sentinel_password_file=" + writeFile(t, secret)
	_, err := opened(t, s.URL(), backends.Options{}).Acquire(within(t, 2*time.Second), request("k"))
	unknown(t, err, true, "NOAUTH", "log in to", "give one by sentinel_password_file")
	_, err = opened(t, s.URL()+"?sentinel_password_file="+writeFile(t, "wrong"), backends.Options{}).Acquire(within(t, 2*time.Second), request("k"))
	unknown(t, err, true, "WRONGPASS", "log in to", "check sentinel_user and sentinel_password_file")
	_, err = opened(t, s.URL()+"x"+file, backends.Options{}).Acquire(within(t, 2*time.Second), request("k"))
	unknown(t, err, true, "no master of that name", "path of the URL")
	s.Sentinels[0].Freeze()
	s.Sentinels[1].Kill()
	b := opened(t, s.URL()+file, backends.Options{})
	soon(t, time.Second, "an acquire with one Sentinel left", func() { release(t, acquire(t, b, request("k"))) })
}

// TestWaitReplicas: a grant that too few replicas have is none.
func TestWaitReplicas(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Replicas: 1})
	url := s.Servers[0].URL() + "?wait_replicas=1"
	b := opened(t, url, backends.Options{})
	l := acquire(t, b, request("k"))
	s.Servers[1].Freeze()
	unknown(t, l.Renew(within(t, time.Second), time.Minute), false, "too few replicas", "wait_replicas")
	_, err := b.Acquire(within(t, time.Second), request("other"))
	unknown(t, err, false, "too few replicas")
	refused(t, b, request("k")) // whoever holds it, the replicas have no say in that
	s.Servers[1].Thaw()
	if err := beat(t, l, answered); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if !failing(opened(t, s.Servers[0].URL()+"?wait_replicas=2", backends.Options{}).(backends.Doctor).Doctor(context.Background()), "replicas") {
		t.Error("doctor finds nothing wrong with too few replicas")
	}
}

// TestClusterFailover: a slot's master hands over, then dies. go-redis' own client for clusters went on to ask a dead one
// for a minute.
func TestClusterFailover(t *testing.T) {
	c := testserver.StartCluster(t, 3, true, testserver.RedisConfig{})
	b := opened(t, c.URL()+"?wait_replicas=1", backends.Options{})
	l := acquire(t, b, loose(request("k")))
	name := b.(*backend).c.names("k").lease
	c.Failover(name)
	if err := beat(t, l, answered); err != nil {
		t.Fatalf("Renew after a failover: %v", err)
	}
	c.AwaitGood()
	old := c.MasterOf(name)
	plain := opened(t, c.URL(), backends.Options{}) // the replica that is left has no replica of its own
	attached, err := plain.Attach(context.Background(), "k", l.Grant().Token)
	if err != nil {
		t.Fatal(err)
	}
	old.Kill()
	if err := beat(t, attached, answered); err != nil {
		t.Fatalf("Renew after the master's death: %v", err)
	}
	release(t, attached)
	if all, err := plain.Status(context.Background()); err != nil || len(all) != 1 {
		t.Errorf("Status of all keys = %+v, %v", all, err)
	}
}

// TestClusterMovesSlot: while a slot is moved some of its keys are here and some there.
func TestClusterMovesSlot(t *testing.T) {
	c := testserver.StartCluster(t, 3, false, testserver.RedisConfig{})
	b := opened(t, c.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	n := b.(*backend).c.names("k")
	from := c.MasterOf(n.lease)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	slot := itoa(slotOf("30"))
	if got := from.Must("CLUSTER", "KEYSLOT", n.lease); itoa(int(got.(int64))) != slot {
		t.Fatalf("slot %v, we say %s", got, slot)
	}
	to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Must("CLUSTER", "MYID").(string))
	from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Must("CLUSTER", "MYID").(string))
	port := itoa(to.Port())
	for _, key := range []string{n.lease, n.index} {
		from.Must("MIGRATE", "127.0.0.1", port, key, "0", "5000")
	}
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Errorf("Renew of a lease that has moved on: %v", err)
	}
	for _, node := range []*testserver.Redis{to, from, c.Nodes[2]} {
		node.Must("CLUSTER", "SETSLOT", slot, "NODE", to.Must("CLUSTER", "MYID").(string))
	}
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Errorf("Renew after the slot has moved: %v", err)
	}
	release(t, l)
	if c.MasterOf(n.lease) != to {
		t.Error("the slot has not moved")
	}
}
