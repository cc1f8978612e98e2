// Package firestore keeps leases in Google's Firestore, in native mode, over its REST interface.
//
// The REST interface and not Google's gRPC client, because that was measured to add 13 ms and 11.5 MB to each start of
// lockrun, whatever the backend, and this one 0.7 ms and 1.8 MB.
//
// # How a key is stored
//
// What stands in the way of a key's next run is one document, slots and pause together, which exists only while there is
// something to tell: see leaseDocument. Taking a free key is creating it if it is absent. Everything else is
// compare-and-set by the update times of this document and the key's, so that nothing is written that was not read, or
// written by us, before: another program's documents stay as they are. Beside it lie a document for each key that is kept for ever (last token,
// attempts), and below that one each run, each refusal and each run id; see names. A commit is atomic over all of them, so
// the lease, its record, the attempt and the done-mark change in one step.
//
// No interactive transaction is used: they lock, and ten contenders took 3 s to be decided where conditions took 0.05 s.
//
// # Clocks
//
// Only the server's times judge: those of reads (readTime) and of commits (updateTime, createTime), which are of one clock
// and always rise for a document. The expiry of a lease is not written down at all. It is its length after the update that
// renewed it, because that update's time is known to nobody before it is done.
//
// A commit cannot ask what time it is. So a holder renews and releases without a read only while its own clock, counted
// from the request that renewed last, says that the lease has not run out; else it reads first. A request that the network
// holds back past the expiry still succeeds where nobody took the lease meanwhile: it was without interruption the
// holder's.
package firestore

import (
	"context"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// backend is one host's way to the store.
type backend struct {
	*client
	keep backends.Keep

	mu      sync.Mutex
	pending []chan struct{} // what is done after the answer; each is closed when it is done
	doubts  map[string]bool // owners whose acquire may be on its way still, see Abandon
}

var (
	_ backends.Backend  = (*backend)(nil)
	_ backends.Waiter   = (*backend)(nil)
	_ backends.Doctor   = (*backend)(nil)
	_ backends.OpenFunc = Open
)

// Open prepares the way to the store that u names and uses neither network nor credentials: what is wrong with them shows
// in the first operation. It returns *backends.UsageError for a URL that has to be corrected. Nothing has to be created in
// Firestore but the database itself, and Options.ReadOnly makes no difference.
func Open(_ context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	o = o.WithDefaults()
	c, err := configure(u, o)
	if err != nil {
		return nil, err
	}
	return &backend{client: newClient(c), keep: o.Keep}, nil
}

// Name is the project, the collection and, where it is not the default one, the database.
func (b *backend) Name() string { return b.name }

// Now is the server's clock.
func (b *backend) Now(ctx context.Context) (time.Time, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	_, now, err := b.client.read(ctx, b.names.lease("."))
	return now, b.fail(ctx, "read the clock", err)
}

// courtesy bounds what Close waits for: waiters that take their names off the list.
const courtesy = 250 * time.Millisecond

// later does what nobody waits for but Close, and that only for a moment.
func (b *backend) later(ctx context.Context, f func(context.Context)) {
	done := make(chan struct{})
	b.mu.Lock()
	b.pending = append(b.pending, done)
	b.mu.Unlock()
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
		defer cancel()
		f(ctx)
	}()
}

// Close frees the connections.
func (b *backend) Close() error {
	b.mu.Lock()
	pending := b.pending
	b.pending = nil
	b.mu.Unlock()
	t := time.NewTimer(courtesy)
	defer t.Stop()
	for _, done := range pending {
		select {
		case <-done:
			continue
		case <-t.C:
		}
		break
	}
	b.client.close()
	return nil
}
