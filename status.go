package main

import (
	"context"
	"slices"
	"strconv"
	"time"

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
		c.tellStates(p, states, new(storeClock).now(ctx, c, b, states))
		return p.close(allHeld(c.cfg.Keys, states)), nil
	})
}

// tellStates prints states in the form that was asked for. now is as in statusTable.
func (c *call) tellStates(p *page, states []backends.State, now time.Time) {
	if !c.cfg.JSON {
		statusTable(states, now).print(p, c.screen())
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

// statusTable shows states that were read when it was now by the store's clock.
func statusTable(states []backends.State, now time.Time) *table {
	t := &table{head: []string{"KEY", "STATE", "HOLDER", "AGE", "LEFT", "ATTEMPT", "WAITERS", "TOKEN", "RUN ID", "REASON"},
		shrink: []int{9, 8, 2, 0}, spare: []int{6, 8, 9, 5, 7}, paint: map[int]func(string) style{1: stateStyle}}
	for _, s := range states {
		waiters := 0
		if s.Waiters != nil {
			waiters = *s.Waiters
		}
		t.row(shownKey(s.Key)+slotMark(s), s.State, s.Holder, age(s, now), left(s), counted(s.Attempt), counted(waiters), counted(s.Token), s.RunID, s.Reason)
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

// age is for how long the lease has been held, or the key been paused. The store's own now is the expiry less what is left
// of it, where there is an expiry.
func age(s backends.State, now time.Time) string {
	if s.State == backends.Free || s.AcquiredAt == nil {
		return ""
	}
	if !timeless(s) {
		now = s.ExpiresAt.Add(-*s.ExpiresIn)
	}
	return shortDuration(max(now.Sub(*s.AcquiredAt), 0))
}

// timeless tells a state that does not say what time it is: a pause until it is ended, and a lease whose end nobody knows.
func timeless(s backends.State) bool { return s.ExpiresAt == nil || s.ExpiresIn == nil }

// storeClock is the store's clock, asked for only where a state does not tell it. Its zero value is ready for use.
type storeClock struct {
	at   time.Time     // the store's
	boot time.Duration // this host's at that moment
}

// clockFresh is how long the store's clock goes on by itself: asking it may be a write.
const clockFresh = 30 * time.Second

// now is the time by the store's clock, and zero where nothing that is shown needs it. Who may not ask it is shown this host's.
func (k *storeClock) now(ctx context.Context, c *call, b backends.Backend, states []backends.State) time.Time {
	if c.cfg.JSON || !slices.ContainsFunc(states, func(s backends.State) bool { return s.State != backends.Free && timeless(s) }) {
		return time.Time{}
	}
	if k.at.IsZero() || bootNow()-k.boot > clockFresh {
		at, err := b.Now(ctx)
		if err != nil {
			at = time.Now()
		}
		k.at, k.boot = at, bootNow()
	}
	return k.at.Add(bootNow() - k.boot)
}

func left(s backends.State) string {
	if s.ExpiresIn == nil {
		return ""
	}
	return shortDuration(max(*s.ExpiresIn, 0))
}
