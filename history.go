package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// doHistory tells finished and refused runs, newest first, or oldest first and on and on.
func doHistory(c *call) int {
	if c.cfg.Follow {
		return c.follow()
	}
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		q, err := c.query(ctx, b)
		if err != nil {
			return 0, err
		}
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
			historyTable(records).print(p, c.screen())
		}
		return p.close(codeOK), nil
	})
}

// query is what was asked for. How long ago something was is told by the store's clock, which may have to be asked.
func (c *call) query(ctx context.Context, b backends.Backend) (backends.Query, error) {
	q := backends.Query{Limit: c.cfg.Limit, Outcomes: outcomesOf(c.cfg.Outcomes...)}
	if len(c.cfg.Keys) > 0 {
		q.Key = c.cfg.Keys[0]
	}
	if c.cfg.Since == "" {
		return q, nil
	}
	if d, err := parseDuration(c.cfg.Since); err == nil {
		now, err := b.Now(ctx)
		q.Since = now.Add(-d)
		return q, err
	}
	var err error
	q.Since, err = parseTime(c.cfg.Since)
	return q, err
}

// timeLayouts are how a person writes a moment: RFC 3339, or without what goes without saying.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// parseTime reads a moment; without a zone it is this host's (TZ).
func parseTime(s string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New(`is neither a duration like 90s, 1h30m or 1d12h nor a time like 2026-11-30, "2026-11-30 06:15" or 2026-11-30T06:15:00Z`)
}

// checkSince refuses what is neither a duration nor a moment.
func checkSince(s string) error {
	_, notDuration := parseDuration(s)
	if notDuration == nil {
		return nil
	}
	_, notTime := parseTime(s)
	if notTime != nil && !errors.Is(notDuration, errNoDuration) {
		return notDuration // more telling: it is zero, negative, or has no unit
	}
	return notTime
}

// allOutcomes are the words that --outcome takes.
var allOutcomes = []backends.Outcome{backends.Succeeded, backends.Failed, backends.Skipped, backends.Done, backends.Lost, backends.TimedOut,
	backends.Unavailable, backends.NotStarted, backends.Unlocked, backends.Crashed}

// checkOutcomes refuses a word that is no outcome, which would select nothing.
func checkOutcomes(list string) error {
	for _, o := range outcomesOf(list) {
		if !slices.Contains(allOutcomes, o) {
			return fmt.Errorf("%s is no outcome; the outcomes are %s", quoted(string(o)), joined(allOutcomes))
		}
	}
	return nil
}

// outcomesOf takes lists apart; nil where there is none.
func outcomesOf(lists ...string) []backends.Outcome {
	var all []backends.Outcome
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			all = append(all, backends.Outcome(strings.TrimSpace(word)))
		}
	}
	return all
}

func joined(all []backends.Outcome) string {
	words := make([]string, len(all))
	for i, o := range all {
		words[i] = string(o)
	}
	return strings.Join(words, ", ")
}

func historyTable(records []backends.Record) *table {
	t := &table{head: []string{"STARTED", "KEY", "OUTCOME", "EXIT", "TOOK", "WAITED", "ATTEMPT", "HOLDER", "TOKEN", "RUN ID", "REASON"},
		shrink: []int{10, 9, 7, 1}, spare: []int{5, 6, 8, 9, 10, 3, 4}, paint: map[int]func(string) style{2: outcomeStyle}}
	for _, r := range records {
		t.row(recordCells(r)...)
	}
	return t
}

func recordCells(r backends.Record) []string {
	exit, took, waited := "", "", ""
	if r.ExitCode != nil {
		exit = strconv.Itoa(*r.ExitCode)
	}
	if r.Duration != nil {
		took = shortDuration(*r.Duration)
	}
	if r.Waited >= time.Millisecond {
		waited = shortDuration(r.Waited)
	}
	return []string{r.StartedAt.UTC().Format(time.RFC3339), shownKey(r.Key), string(r.Outcome), exit, took, waited, counted(r.Attempt),
		r.Holder, counted(r.Token), r.RunID, r.Reason}
}

func outcomeStyle(outcome string) style {
	switch backends.Outcome(outcome) {
	case backends.Succeeded:
		return green
	case backends.Done:
		return dim
	case backends.Skipped:
		return yellow
	}
	return red
}
