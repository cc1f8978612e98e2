package main

import (
	"context"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// What --ttl auto keeps to.
const (
	minAutoTTL  = 30 * time.Second
	maxAutoTTL  = 24 * time.Hour
	autoTTLRuns = 100 // how many successes are looked at, the newest
)

// validateAutoTTL checks the settings that depend on a TTL which only the history tells, against the shortest that it may
// come to: a job must not be refused one day because it has become quicker.
func (s *settler) validateAutoTTL() {
	c := s.cfg
	c.AutoTTL, c.TTL = true, defaultTTL
	if s.verb.is(vRenew) {
		s.wrong(codeUsage, "%s auto is for a lease that is asked for; leave it out to renew for as long as the lease was granted", s.chosen["ttl"].from)
		return
	}
	heartbeat := c.Heartbeat
	if heartbeat == 0 {
		heartbeat = minAutoTTL / 3
	}
	switch {
	case !s.verb.is(vLease | vDoctor):
	case heartbeat > minAutoTTL/2:
		s.conflict([]string{"heartbeat", "ttl"}, "%s is more than half of the %v that --ttl auto may come to; at most %v",
			s.told("heartbeat", heartbeat), minAutoTTL, minAutoTTL/2)
	case c.Grace+heartbeat >= minAutoTTL:
		s.conflict([]string{"grace", "heartbeat", "ttl"}, "%s and %s together are not under the %v that --ttl auto may come to; the grace must be under %v",
			s.told("grace", c.Grace), s.told("heartbeat", heartbeat), minAutoTTL, minAutoTTL-heartbeat)
	}
}

// withTTL is c with this TTL and what follows from it.
func (c *Config) withTTL(ttl time.Duration) *Config {
	n := *c
	n.TTL = ttl
	if n.Heartbeat == 0 {
		n.Heartbeat = ttl / 3
	}
	if n.Grace == 0 {
		n.Grace = min(defaultGrace, ttl/6)
	}
	return &n
}

// autoTTL is the TTL by the key's history. A history that cannot be read is none: whether the backend can be reached is for
// the lease to find out.
func (r *runner) autoTTL(ctx context.Context, b backends.Backend) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.BackendTimeout)
	defer cancel()
	runs, err := b.History(ctx, backends.Query{Key: r.req.Key, Outcomes: []backends.Outcome{backends.Succeeded}, Limit: autoTTLRuns})
	ttl := ttlFor(runs)
	if err != nil {
		r.ui.warn("the history was not read, so --ttl auto is %v: %v", ttl, err)
	} else {
		r.ui.info("--ttl auto is %s, by %d successful runs", shortDuration(ttl), len(runs))
	}
	return ttl
}

// ttlFor is one and a half times the 99th percentile (nearest rank) of the runs' durations, in whole milliseconds.
func ttlFor(runs []backends.Record) time.Duration {
	var took []time.Duration
	for _, run := range runs {
		if run.Duration != nil {
			took = append(took, *run.Duration)
		}
	}
	if len(took) == 0 {
		return defaultTTL
	}
	slices.Sort(took)
	p99 := took[(len(took)*99+99)/100-1]
	return min(max(p99+p99/2, minAutoTTL), maxAutoTTL).Round(time.Millisecond)
}
