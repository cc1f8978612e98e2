package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

// Asking commands send plain reads in one pipeline and no script: EVALSHA needs rights that somebody who may only read
// does not have, whatever the script does.

// now is the server's clock.
func (n *node) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := n.call(ctx, "read the clock", 0, repeatable, func(ctx context.Context, c *goredis.Client) error {
		var err error
		now, err = c.Time(ctx).Result()
		return err
	})
	return now.UTC(), err
}

// chunk is how many keys one pipeline asks for, so that neither side has to hold everything at once.
const chunk = 256

// keys are all lock keys, in byte order.
func (n *node) keys(ctx context.Context) ([]string, error) {
	all := make([]int, buckets)
	for i := range all {
		all[i] = i
	}
	var keys []string
	var mu sync.Mutex
	err := n.spread(ctx, "list keys", all, func(b int) int { return b }, func(ctx context.Context, c *goredis.Client, part []int) error {
		pipe := c.Pipeline()
		sets := make([]*goredis.StringSliceCmd, len(part))
		for i, b := range part {
			sets[i] = pipe.SMembers(ctx, n.c.index(b))
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for _, set := range sets {
			if err := set.Err(); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, set := range sets {
			keys = append(keys, set.Val()...)
		}
		return nil
	})
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// dumps reads the lease hashes of keys, in their order.
func (n *node) dumps(ctx context.Context, op string, keys []string) ([]dump, error) {
	all := make([]dump, len(keys))
	where := make([]int, len(keys))
	for i := range where {
		where[i] = i
	}
	err := n.spread(ctx, op, where, func(i int) int { return bucketOf(keys[i]) }, func(ctx context.Context, c *goredis.Client, part []int) error {
		pipe := c.Pipeline()
		clock := pipe.Time(ctx)
		hashes := make([]*goredis.MapStringStringCmd, len(part))
		waiters := make([]*goredis.ZSliceCmd, len(part))
		for i, at := range part {
			k := n.c.names(keys[at])
			hashes[i], waiters[i] = pipe.HGetAll(ctx, k.lease), pipe.ZRangeWithScores(ctx, k.waiters, 0, -1)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		if err := clock.Err(); err != nil {
			return err
		}
		for i, at := range part {
			if err := firstOf(hashes[i].Err(), waiters[i].Err()); err != nil {
				return err
			}
			d, err := parseDump(keys[at], clock.Val().UTC(), hashes[i].Val())
			if err != nil {
				return err
			}
			d.waiters = waiting(waiters[i].Val(), d.now)
			all[at] = d
		}
		return nil
	})
	return all, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// waiting counts the waiters whose registration has not run out.
func waiting(list []goredis.Z, now time.Time) *int {
	n := 0
	for _, z := range list {
		if z.Score > float64(now.UnixMicro()) {
			n++
		}
	}
	return &n
}

// records are the run records of keys, in no order, with leases that ran out and were not taken since.
func (n *node) records(ctx context.Context, keys []string) (all []stored, err error) {
	err = n.texts(ctx, keys, func(d dump, texts []string) {
		all = append(all, n.told(d, texts)...)
	})
	return all, err
}

// texts calls f, once at a time, for each key with its records as they are stored, runs and refusals.
func (n *node) texts(ctx context.Context, keys []string, f func(d dump, texts []string)) error {
	dumps, err := n.dumps(ctx, "history", keys)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	where := make([]int, len(keys))
	for i := range where {
		where[i] = i
	}
	return n.spread(ctx, "history", where, func(i int) int { return bucketOf(keys[i]) }, func(ctx context.Context, c *goredis.Client, part []int) error {
		pipe := c.Pipeline()
		runs, skips := make([]*goredis.StringSliceCmd, len(part)), make([]*goredis.StringSliceCmd, len(part))
		for i, at := range part {
			k := n.c.names(keys[at])
			runs[i], skips[i] = pipe.ZRevRange(ctx, k.runs, 0, -1), pipe.LRange(ctx, k.skips, 0, -1)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		mu.Lock()
		defer mu.Unlock()
		for i, at := range part {
			if err := firstOf(runs[i].Err(), skips[i].Err()); err != nil {
				return err
			}
			f(dumps[at], append(runs[i].Val(), skips[i].Val()...))
		}
		return nil
	})
}

// told reads the records of one key and adds what no record tells yet.
func (n *node) told(d dump, texts []string) (all []stored) {
	known := map[int64]bool{}
	for _, text := range texts {
		if r, ok := parseRecord(d.key, n.name, text); ok {
			known[r.Token] = true
			all = append(all, r)
		}
	}
	for _, r := range d.rows {
		if r.state == "L" && !r.live(d.now) && !known[r.token] {
			all = append(all, d.crashed(r, n.name))
		}
	}
	return all
}

// spread runs f for parts of the list, each on the server that has the buckets of its part; several servers work at the
// same time. What a server did for a part may be done again.
func (n *node) spread(ctx context.Context, op string, list []int, bucket func(int) int,
	f func(ctx context.Context, c *goredis.Client, part []int) error,
) error {
	ctx, cancel := n.c.bound(ctx)
	defer cancel()
	parts, err := n.parts(ctx, list, bucket)
	if err != nil {
		return n.c.explain(op, n.name, err)
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			for c := range slices.Chunk(part, chunk) {
				if errs[i] == nil {
					errs[i] = n.call(ctx, op, bucket(c[0]), repeatable, func(ctx context.Context, client *goredis.Client) error { return f(ctx, client, c) })
				}
			}
		})
	}
	wg.Wait()
	return firstOf(errs...)
}

// parts groups the list by server.
func (n *node) parts(ctx context.Context, list []int, bucket func(int) int) ([][]int, error) {
	if _, many := n.route.(*cluster); !many {
		if len(list) == 0 {
			return nil, nil
		}
		return [][]int{list}, nil
	}
	at := map[*server]int{}
	var parts [][]int
	for _, v := range list {
		s, err := n.route.pick(ctx, bucket(v))
		if err != nil {
			return nil, err
		}
		i, ok := at[s]
		if !ok {
			i = len(parts)
			at[s], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], v)
	}
	return parts, nil
}

// registerWaiter tells how long the key stays taken if nothing happens, 0 where nobody knows, and whether it is free.
func (n *node) registerWaiter(ctx context.Context, r backends.Request) (left time.Duration, free bool, err error) {
	k := n.c.names(r.Key)
	v, err := n.script(ctx, "wait", r.Key, scripts.wait, 0, []string{k.lease, k.waiters, k.wake, k.done}, r.Owner, r.Slots, length(waiterLife), r.RunID)
	if err != nil {
		return 0, false, err
	}
	if len(v) != 2 {
		return 0, false, n.odd("wait", v)
	}
	return time.Duration(number(v[1])) * time.Microsecond, v[0] == "free", nil
}

// sleepUntilWoken blocks until a release wakes this waiter, or d has passed.
func (n *node) sleepUntilWoken(ctx context.Context, key string, d time.Duration) (woken bool, err error) {
	k := n.c.names(key)
	ctx, cancel := context.WithTimeout(ctx, d+n.c.timeout)
	defer cancel()
	err = n.call(ctx, "wait", bucketOf(key), repeatable, func(ctx context.Context, c *goredis.Client) error {
		// go-redis rounds BLPOP's timeout to seconds; Redis takes fractions since 6.0.
		err := c.Do(ctx, "BLPOP", k.wake, strconv.FormatFloat(d.Seconds(), 'f', 3, 64)).Err()
		woken = err == nil
		if errors.Is(err, goredis.Nil) {
			return nil
		}
		return err
	})
	return woken, err
}

// unregisterWaiter is a courtesy: a registration runs out by itself.
func (n *node) unregisterWaiter(ctx context.Context, key, owner string) error {
	return n.call(ctx, "wait", bucketOf(key), repeatable, func(ctx context.Context, c *goredis.Client) error {
		return c.ZRem(ctx, n.c.names(key).waiters, owner).Err()
	})
}
