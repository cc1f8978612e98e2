package main

import (
	"context"
	"strconv"

	"github.com/lockrun/lockrun/backends"
)

// doStatus tells who holds what. With keys it succeeds only where all of them are held.
func doStatus(c *call) int {
	if c.cfg.Watch {
		return c.watch()
	}
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		states, err := b.Status(ctx, c.cfg.Keys...)
		if err != nil {
			return 0, err
		}
		p := c.page()
		c.tellStates(p, states)
		return p.close(allHeld(c.cfg.Keys, states)), nil
	})
}

// tellStates prints states in the form that was asked for.
func (c *call) tellStates(p *page, states []backends.State) {
	if !c.cfg.JSON {
		statusTable(states).print(p, c.screen())
		return
	}
	for _, s := range states {
		p.json(s)
	}
}

// allHeld is the exit code of a question about these keys.
func allHeld(keys []string, states []backends.State) int {
	held := map[string]bool{}
	for _, s := range states {
		if s.State == backends.Held {
			held[s.Key] = true
		}
	}
	for _, k := range keys {
		if !held[k] {
			return codeNo
		}
	}
	return codeOK
}

func statusTable(states []backends.State) *table {
	t := &table{head: []string{"KEY", "STATE", "HOLDER", "AGE", "LEFT", "ATTEMPT", "WAITERS", "TOKEN", "RUN ID", "REASON"},
		shrink: []int{9, 8, 2, 0}, spare: []int{6, 8, 9, 5, 7}, paint: map[int]func(string) style{1: stateStyle}}
	for _, s := range states {
		waiters := 0
		if s.Waiters != nil {
			waiters = *s.Waiters
		}
		t.row(shownKey(s.Key)+slotMark(s), s.State, s.Holder, age(s), left(s), counted(s.Attempt), counted(waiters), counted(s.Token), s.RunID, s.Reason)
	}
	return t
}

// counted is a number in a table, where 0 is none.
func counted[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func stateStyle(state string) style {
	switch state {
	case backends.Held:
		return green
	case backends.Paused:
		return yellow
	}
	return dim
}

// slotMark tells slots apart; the first goes without saying.
func slotMark(s backends.State) string {
	if s.Slot == nil || *s.Slot == 0 {
		return ""
	}
	return "[" + strconv.Itoa(*s.Slot) + "]"
}

// age is for how long the lease has been held. The store's own now is the expiry less what is left of it.
func age(s backends.State) string {
	if s.State != backends.Held || s.AcquiredAt == nil || s.ExpiresAt == nil || s.ExpiresIn == nil {
		return ""
	}
	return shortDuration(max(s.ExpiresAt.Add(-*s.ExpiresIn).Sub(*s.AcquiredAt), 0))
}

func left(s backends.State) string {
	if s.ExpiresIn == nil {
		return ""
	}
	return shortDuration(max(*s.ExpiresIn, 0))
}
