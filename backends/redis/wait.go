package redis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lookAgain is how long a waiter trusts that it will be woken: another waiter may have been woken in its place and have
// died, or the server may have forgotten the list that waiters block on.
const lookAgain = 3 * time.Second

// Wait blocks in the server until a release wakes it. One release wakes one waiter for each slot, the longest waiting
// first, so that a thousand waiters are no herd; with run ids it wakes up to 32, and the rest look again by themselves. It needs neither keyspace notifications nor rights to channels.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	_, err := waitOn(ctx, b.node, r)
	if err != nil && ctx.Err() != nil {
		b.bg.do(ctx, courtesy, func(ctx context.Context) { _ = b.node.unregisterWaiter(ctx, r.Key, r.Owner) })
		return ctx.Err()
	}
	return err
}

// waitOn waits for a slot on one node: nil says that it may be free, and woken that a release has just said so.
func waitOn(ctx context.Context, n *node, r backends.Request) (woken bool, err error) {
	for ctx.Err() == nil {
		left, free, err := n.registerWaiter(ctx, r)
		if err != nil || free {
			return false, err
		}
		if woken, err := n.sleepUntilWoken(ctx, r.Key, patience(left)); woken || err != nil {
			return woken, err
		}
	}
	return false, ctx.Err()
}

// patience is how long to block: a little longer than the lease that is in the way would last, each waiter another bit,
// so that those whom a crash leaves waiting together do not come back together.
func patience(left time.Duration) time.Duration {
	most := lookAgain/2 + rand.N(lookAgain/2)
	if left <= 0 {
		return most
	}
	return min(most, left+time.Millisecond+rand.N(10*time.Millisecond))
}
