package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// A new leader begins a live lease anew, at the key's next record. Until there is one, who only reads must not take the
// lease for run out, or status says free of what the next run does not get, and a crash is told that has not happened.
func TestANewLeaderBeginsALeaseAnewForReadersToo(t *testing.T) {
	s := newStore(t, 3)
	k := s.cluster
	k.InSync(s.topic, 0, 3)
	const ttl = 3 * time.Second
	r := request("k", 1)
	r.TTL = ttl
	crashed, err := s.behind.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	leader := k.Leader(s.topic, 0)
	for _, b := range k.Nodes {
		if b != leader {
			k.MoveLeader(s.topic, 0, b)
			break
		}
	}
	expires := crashed.Grant().AcquiredAt.Add(ttl)
	time.Sleep(time.Until(expires) + 2*lookForCrashes) // the broker's clock is this host's

	reader := s.open(backends.Options{Timeout: time.Minute, ReadOnly: true})
	told := make(chan backends.Record, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	followed := make(chan error, 1)
	go func() {
		followed <- reader.Follow(ctx, backends.Query{Since: time.Unix(1, 0)}, func(r backends.Record) error { told <- r; return nil })
	}()
	for _, keys := range [][]string{{"k"}, nil} {
		st, err := reader.Status(t.Context(), keys...)
		if err != nil || len(st) != 1 || st[0].State != backends.Held || st[0].ExpiresIn == nil || *st[0].ExpiresIn != ttl {
			t.Errorf("status of %v: %+v, %v", keys, st, err)
		}
	}
	if h, err := reader.History(t.Context(), backends.Query{}); err != nil || len(h) != 0 {
		t.Errorf("history: %+v, %v", h, err)
	}
	select {
	case r := <-told:
		t.Errorf("follow told of %+v", r)
	case <-time.After(3 * lookForCrashes):
	}
	// The next LOCK is refused, and with it the lease's time begins.
	other := s.open(backends.Options{Timeout: time.Minute})
	var held *backends.HeldError
	if _, err := other.Acquire(t.Context(), request("k", 2)); !errors.As(err, &held) {
		t.Fatalf("the next run: %v", err)
	}
	s.takeOnceFree(other, request("k", 3))
	h, err := reader.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Crashed || !h[0].EndedAt.After(expires) {
		t.Fatalf("history after the takeover: %+v, %v", h, err)
	}
	select {
	case r := <-told:
		if r.Outcome != backends.Crashed || !r.EndedAt.Equal(h[0].EndedAt) {
			t.Errorf("follow told of %+v, and history of %+v", r, h[0])
		}
	case <-time.After(time.Minute):
		t.Error("follow told nothing")
	}
	cancel()
	<-followed
}

// takeOnceFree acquires as soon as the key is free.
func (s *store) takeOnceFree(b *backend, r backends.Request) {
	s.Helper()
	for {
		if err := b.Wait(s.Context(), r); err != nil {
			s.Fatal(err)
		}
		_, err := b.Acquire(s.Context(), r)
		var held *backends.HeldError
		if err == nil {
			return
		}
		if !errors.As(err, &held) {
			s.Fatal(err)
		}
	}
}
