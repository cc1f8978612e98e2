package firestore

import (
	"context"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// pageSize bounds one query where most of what it finds may not be asked for.
const pageSize = 250

// page reads the records of one key from one collection, runs or refusals, newest first, until q has enough of them.
// Firestore filters by the time alone: by outcome as well would need an index that somebody has to create.
func (b *backend) page(ctx context.Context, key, collection string, q backends.Query, refusals bool, oldest time.Time) ([]backends.Record, error) {
	if !wanted(q, refusals) {
		return nil, nil
	}
	since := oldest
	if q.Since.After(since) {
		since = q.Since
	}
	// The server tells ends in milliseconds, and of the time when it began to look at the request.
	ask := query{From: []from{{collection}}, Where: where("ended", "GREATER_THAN_OR_EQUAL", when(since.Add(-time.Second))),
		Order: []order{{field{"ended"}, "DESCENDING"}, {field{"__name__"}, "DESCENDING"}}, Limit: b.keep.Runs}
	if q.Limit > 0 {
		ask.Limit = min(ask.Limit, q.Limit)
		if q.Outcomes != nil {
			ask.Limit = min(b.keep.Runs, max(q.Limit, pageSize))
		}
	}
	size, read := ask.Limit, 0
	var all []backends.Record
	for {
		found, _, err := b.find(ctx, b.names.key(key), ask)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if r := b.parseRecord(key, d); q.Matches(r) && !r.EndedAt.Before(oldest) {
				all = append(all, r)
			}
		}
		read += len(found)
		if len(found) < size || read >= b.keep.Runs || q.Limit > 0 && len(all) >= q.Limit {
			return all, nil
		}
		last := found[len(found)-1]
		ask.Start = &cursor{Values: []value{last.Fields["ended"], {Ref: &last.Name}}}
	}
}

// wanted tells whether q asks for any outcome of that kind.
func wanted(q backends.Query, refusals bool) bool {
	return q.Outcomes == nil || slices.ContainsFunc(q.Outcomes, func(o backends.Outcome) bool { return o.Refusal() == refusals })
}
