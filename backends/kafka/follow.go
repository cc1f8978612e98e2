package kafka

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Follow reads the topic from its beginning, since what a record ends was begun by an earlier one, and then waits for what
// comes. See backends.Follower.
func (b *backend) Follow(ctx context.Context, q backends.Query, emit func(backends.Record) error) error {
	if err := b.agree(ctx, false); err != nil {
		return b.fail("follow", err)
	}
	logs := b.logs
	if q.Key != "" {
		logs = []*log{b.log(q.Key)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found, failed := make(chan []backends.Record), make(chan error, len(logs))
	for _, l := range logs {
		go func() { failed <- l.follow(ctx, q, found) }()
	}
	for {
		select {
		case records := <-found:
			for _, r := range records {
				if !q.Matches(r) {
					continue
				}
				if err := emit(r); err != nil {
					cancel()
					drain(failed, len(logs))
					return err
				}
			}
		case err := <-failed:
			cancel()
			drain(failed, len(logs)-1)
			return b.fail("follow", err)
		}
	}
}

// drain waits for readers that have been told to end.
func drain(failed <-chan error, n int) {
	for range n {
		<-failed
	}
}

// lookForCrashes is how often a follower looks whether a lease has run out.
const lookForCrashes = time.Second

// follow sends on what one partition tells, until ctx ends.
func (l *log) follow(ctx context.Context, q backends.Query, out chan<- []backends.Record) error {
	send := func(records []backends.Record) error {
		if len(records) == 0 {
			return nil
		}
		select {
		case out <- records:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t, err := l.tellFrom(ctx, q)
	for err == nil {
		found, nextErr := t.next(ctx, lookForCrashes)
		if err = nextErr; err != nil {
			break
		}
		now := l.guess(ctx, t.seen)
		switch {
		case t.tell != nil:
			err = send(t.journal.Due(now))
		case t.at >= found.HighWater: // what was there has been read
			t.journal.Due(now)
			if !q.Since.IsZero() {
				past := t.journal.Records(now, l.b.c.keep)
				slices.Reverse(past)
				err = send(past)
			}
			t.tell = send
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// guess is the partition's time, as far as this process knows it; never before seen.
func (l *log) guess(ctx context.Context, seen int64) int64 {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		l.clock.atLeast(seen)
		return l.clock.now()
	case <-ctx.Done():
		return seen
	}
}

func sorted(m map[string][]backends.State) []string { return slices.Sorted(maps.Keys(m)) }

// sortNewest puts the records of several partitions in one order.
func sortNewest(all []backends.Record) {
	slices.SortStableFunc(all, func(x, y backends.Record) int {
		return cmp.Or(y.EndedAt.Compare(x.EndedAt), cmp.Compare(y.Token, x.Token))
	})
}
