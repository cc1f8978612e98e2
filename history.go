package main

import (
	"context"
	"strconv"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// doHistory tells finished and refused runs, newest first.
func doHistory(c *call) int {
	q := backends.Query{Limit: c.cfg.Limit}
	if len(c.cfg.Keys) > 0 {
		q.Key = c.cfg.Keys[0]
	}
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		records, err := b.History(ctx, q)
		if err != nil {
			return 0, err
		}
		p := c.page()
		if c.cfg.JSON {
			for _, r := range records {
				p.json(r)
			}
		} else {
			historyTable(records).print(p, widthOf(c.io.Out))
		}
		return p.close(codeOK), nil
	})
}

func historyTable(records []backends.Record) *table {
	t := &table{head: []string{"STARTED", "KEY", "OUTCOME", "EXIT", "TOOK", "HOLDER", "TOKEN", "RUN ID", "REASON"}, shrink: []int{8, 7, 5, 1}}
	for _, r := range records {
		exit, took, token := "", "", ""
		if r.ExitCode != nil {
			exit = strconv.Itoa(*r.ExitCode)
		}
		if r.Duration != nil {
			took = shortDuration(*r.Duration)
		}
		if r.Token != 0 {
			token = strconv.FormatInt(r.Token, 10)
		}
		t.row(r.StartedAt.UTC().Format(time.RFC3339), shownKey(r.Key), string(r.Outcome), exit, took, r.Holder, token, r.RunID, r.Reason)
	}
	return t
}
