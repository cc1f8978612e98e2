package main

import (
	"context"
	"fmt"

	"github.com/lockrun/lockrun/internal/testserver"
)

// trips counts the requests that a client sends and waits for. A pipeline counts once.
func (b *bench) trips(s *stage, st *store) []row {
	ctx := context.Background()
	c := &contender{Backend: st.backend(s, st.throughProxy()), key: "trips"}
	_, err := c.cycle(ctx) // loads scripts into a server that has never seen us
	must(err)
	fresh := &contender{Backend: st.backend(s, st.throughProxy()), key: "trips"}
	var seen *testserver.Monitor
	if r, ok := st.native.(*redisReplay); ok {
		seen = r.server.Monitor()
	}
	before := st.proxy.Requests()
	count := func() int { n := st.proxy.Requests() - before; before += n; return n }
	l, err := fresh.Acquire(ctx, fresh.request())
	must(err)
	first := count()
	must(l.Renew(ctx, l.Grant().TTL))
	renew := count()
	must(l.Release(ctx, succeeded()))
	release := count()
	l, err = fresh.Acquire(ctx, fresh.request())
	must(err)
	again := count()
	must(l.Release(ctx, succeeded()))
	rows := []row{{st.name + ", round trips: connecting and first acquire; acquire; renew; release",
		fmt.Sprintf("%d; %d; %d; %d", first, again, renew, release), "", ""}}
	if seen != nil {
		commands := seen.Commands()
		rows = append(rows, row{"commands that MONITOR shows for connecting and two leases, one of them renewed", fmt.Sprint(names(commands)), "", ""})
	}
	return rows
}
