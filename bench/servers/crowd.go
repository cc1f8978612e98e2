package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// oneKey lets a crowd ask for one lease at one instant. All but one have to be told who holds it.
func (b *bench) oneKey(s *stage, st *store) []row {
	cs := st.contenders(s, b.crowd, func(int) string { return "crowd" })
	recorded := st.recordRefusal(s)
	var ours, native, scripts []time.Duration
	for round := range 2 * b.rounds {
		before := st.native.busy()
		ours = append(ours, crowdOnce(cs, fmt.Sprintf("crowd-%d", round)))
		scripts = append(scripts, st.native.busy()-before)
		native = append(native, st.native.atOnce(recorded, b.crowd))
	}
	what := fmt.Sprintf("%s, %d contenders at one instant on one key: one runs, the others are refused; time until all know, against a refused one's requests replayed", st.name, b.crowd)
	rows := []row{times(what, ours, native)}
	if inside := median(scripts); inside > 0 {
		rows = append(rows, row{"of which the server spent inside our scripts", ms(inside), "", ""})
	}
	return rows
}

// crowdOnce gives the time that one round takes.
func crowdOnce(cs []*contender, key string) time.Duration {
	ctx := context.Background()
	leases := make([]backends.Lease, len(cs))
	errs := make([]error, len(cs))
	requests := make([]backends.Request, len(cs))
	for i, c := range cs {
		c.key = key
		requests[i] = c.request()
	}
	took := atOnce(len(cs), func(i int) { leases[i], errs[i] = cs[i].Acquire(ctx, requests[i]) })
	won := 0
	for i, err := range errs {
		var held *backends.HeldError
		switch {
		case err == nil:
			won++
			must(leases[i].Release(ctx, succeeded()))
		case !errors.As(err, &held):
			must(err)
		}
	}
	if won != 1 {
		must(fmt.Errorf("%d of %d were granted the lease: %w", won, len(cs), errNoMeasure))
	}
	return took
}

// recordRefusal gives the requests of one who is refused, and whose refusal is written down.
func (st *store) recordRefusal(s *stage) [][]byte {
	ctx := context.Background()
	c := &contender{Backend: st.backend(s, st.throughProxy()), key: "refused"}
	_, err := c.Acquire(ctx, c.request())
	must(err)
	ask := func() {
		var held *backends.HeldError
		if _, err := c.Acquire(ctx, c.request()); !errors.As(err, &held) {
			must(fmt.Errorf("a held lease: %w: %w", errNoMeasure, err))
		}
	}
	ask() // whatever is sent only the first time
	stop := st.proxy.Record()
	ask()
	return st.native.find(stop())
}
