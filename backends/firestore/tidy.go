package firestore

import (
	"context"
	"math/rand/v2"
	"time"
)

// Cleaning up is part of writing. It costs queries, so it is not done each time:
//   - records beyond the number to keep are removed in batches of a tenth of it, by whoever is drawn;
//   - old records and marks, once in a thousandth of the time that they are kept, which the key's document remembers, or
//     where somebody is drawn.
const (
	batchPart = 10
	agePart   = 1000
	// mostDeleted bounds one clean-up; a commit may hold 500 writes.
	mostDeleted = 400
)

// drawn is true once in as many calls as there are records in a batch.
func (b *backend) drawn() bool { return rand.N(max(1, b.keep.Runs/batchPart)) == 0 }

// tidyRuns follows the release of a run that ended at now. cleaned is when a clean-up was done last, in microseconds, 0
// for never. The run is released whatever becomes of it.
func (b *backend) tidyRuns(ctx context.Context, key string, now time.Time, cleaned int64) {
	ctx, cancel := context.WithTimeout(ctx, min(b.timeout, time.Second))
	defer cancel()
	mark := b.touch(key, fields{"cleaned_us": num(now.UnixMicro())})
	due := now.Sub(microTime(cleaned)) > b.keep.Age/agePart
	if !due && !b.drawn() {
		return
	}
	writes := b.surplus(ctx, key, b.names.runs(), now)
	writes = append(writes, b.older(ctx, key, b.names.marks(), "at", now.Add(-b.keep.DoneAge))...)
	if due || len(writes) > 0 {
		_, _ = b.commit(ctx, append(writes, mark))
	}
}

// tidySkips follows a refusal.
func (b *backend) tidySkips(ctx context.Context, key string, now time.Time) {
	if !b.drawn() {
		return
	}
	if writes := b.surplus(ctx, key, b.names.skips(), now); len(writes) > 0 {
		_, _ = b.commit(ctx, writes)
	}
}

// surplus deletes what is too old, or too much, in a collection of a key's records. Where another does the same at the
// same time one of the two commits is refused, so that none deletes more than it counted.
func (b *backend) surplus(ctx context.Context, key, collection string, now time.Time) []write {
	writes := b.older(ctx, key, collection, "ended", now.Add(-b.keep.Age))
	n, err := b.count(ctx, b.names.key(key), collection)
	if over := n - b.keep.Runs; err == nil && over > len(writes) {
		writes = b.oldest(ctx, key, collection, "ended", nil, over)
	}
	return writes
}

func (b *backend) older(ctx context.Context, key, collection, field string, than time.Time) []write {
	return b.oldest(ctx, key, collection, field, where(field, "LESS_THAN", when(than)), mostDeleted/2)
}

// oldest deletes up to so many of the oldest documents.
func (b *backend) oldest(ctx context.Context, key, collection, by string, which *filter, most int) []write {
	found, _, err := b.find(ctx, b.names.key(key), query{Select: only(), From: []from{{collection}}, Where: which,
		Order: []order{{field{by}, "ASCENDING"}}, Limit: min(most, mostDeleted/2)})
	if err != nil {
		return nil
	}
	var writes []write
	for _, d := range found {
		writes = append(writes, write{Delete: d.Name, Current: version(d.Updated)})
	}
	return writes
}
