package backends

import (
	"testing"
	"time"
)

func TestWhatNoStoreGrants(t *testing.T) {
	r := Request{TTL: time.Minute, Slots: 3}
	good := Grant{Token: 1, Slot: 2, Attempt: 1, TTL: time.Minute, Drift: time.Millisecond}
	if err := good.Check(r); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Grant){
		"no token": func(g *Grant) { g.Token = 0 }, "negative token": func(g *Grant) { g.Token = -5 },
		"token that JSON readers round": func(g *Grant) { g.Token = 1 << 53 },
		"negative slot":                 func(g *Grant) { g.Slot = -1 }, "slot not asked for": func(g *Grant) { g.Slot = 3 },
		"no attempt": func(g *Grant) { g.Attempt = 0 }, "no time": func(g *Grant) { g.TTL = 0 },
		"negative time": func(g *Grant) { g.TTL = -time.Minute }, "more time": func(g *Grant) { g.TTL = time.Hour },
		"negative drift": func(g *Grant) { g.Drift = -time.Second },
	} {
		g := good
		spoil(&g)
		if g.Check(r) == nil {
			t.Errorf("%s: it is let through", name)
		}
	}
}
