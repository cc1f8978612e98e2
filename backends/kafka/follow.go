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
		switch {
		case t.tell != nil:
			var due []backends.Record
			if due, err = t.due(ctx); err == nil {
				err = send(due)
			}
		case t.at >= found.HighWater: // what was there has been read
			var past []backends.Record
			if past, err = t.past(ctx); err == nil && !q.Since.IsZero() {
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

// past are the records that there were before anything is told, oldest first. What has run out counts as told.
func (t *telling) past(ctx context.Context) ([]backends.Record, error) {
	epoch, err := t.l.b.client.Epoch(ctx, t.l.id)
	if err != nil {
		return nil, err
	}
	now := t.l.guess(ctx, t.seen)
	t.journal.Due(now, epoch)
	past := t.journal.Records(now, epoch, t.l.b.c.keep)
	slices.Reverse(past)
	return past, nil
}

// due are crashes that nobody has written yet. Under a new leader a lease is begun anew by its key's next record, so that it
// has not run out yet, whatever the clock says; the broker is asked for that, where it matters.
func (t *telling) due(ctx context.Context) ([]backends.Record, error) {
	now := t.l.guess(ctx, t.seen)
	if !t.journal.Overdue(now) {
		return nil, nil
	}
	epoch, err := t.l.b.client.Epoch(ctx, t.l.id)
	if err != nil {
		return nil, err
	}
	return t.journal.Due(now, epoch), nil
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
