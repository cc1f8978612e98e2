package main

import (
	"context"
	"strconv"

	"github.com/lockrun/lockrun/backends"
)

// doStatus tells who holds what. With keys it succeeds only where all of them are held.
func doStatus(c *call) int {
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		states, err := b.Status(ctx, c.cfg.Keys...)
		if err != nil {
			return 0, err
		}
		p := c.page()
		if c.cfg.JSON {
			for _, s := range states {
				p.json(s)
			}
		} else {
			statusTable(states).print(p, widthOf(c.io.Out))
		}
		return p.close(allHeld(c.cfg.Keys, states)), nil
	})
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
	t := &table{head: []string{"KEY", "STATE", "HOLDER", "AGE", "LEFT", "TOKEN"}, shrink: []int{0, 2}}
	for _, s := range states {
		token := ""
		if s.Token != 0 {
			token = strconv.FormatInt(s.Token, 10)
		}
		t.row(shownKey(s.Key)+slotMark(s), s.State, s.Holder, age(s), left(s), token)
	}
	return t
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
