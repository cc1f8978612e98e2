package mysql

import (
	"context"
	"slices"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Walker = (*backend)(nil)

// walkKeys is how many keys' records are read in one exchange: at most some ten thousand rows.
const walkKeys = 16

// Walk reads the records key by key, which is the order of the table, so many keys in a transaction.
func (b *backend) Walk(ctx context.Context, q backends.Query, f func(*backends.Record) error) error {
	keys := []string{q.Key}
	if q.Key == "" {
		var err error
		if keys, err = b.allKeys(ctx); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(keys, walkKeys) {
		all, err := b.records(ctx, b.t.historyText(q, b.keep, part[0], part[len(part)-1]))
		if err != nil {
			return err
		}
		for i := range all {
			if !q.Matches(all[i]) { // of leases the text asks for no outcome
				continue
			}
			if err := f(&all[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// allKeys are the keys that the store knows, in the order of their bytes.
func (b *backend) allKeys(ctx context.Context) (keys []string, err error) {
	text := b.t.fields("").fill(`SELECT k.job_name FROM {keys} k ORDER BY k.job_name`)
	err = b.do(ctx, "history", repeatable, func(ctx context.Context, c *conn) error {
		keys = nil
		sets, err := c.query(ctx, text)
		for _, s := range sets {
			for _, r := range s.rows {
				keys = append(keys, r.str(0))
			}
		}
		return err
	})
	return keys, err
}
