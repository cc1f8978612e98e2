package redis

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

// route knows which server has a bucket: the only thing in which single server, Sentinel and Cluster differ.
type route interface {
	// pick returns the server that has the bucket, finding it out first where that is not known.
	pick(ctx context.Context, bucket int) (*server, error)
	// failed is told of an error by which what the route knows may be out of date, and tells whether asking pick again
	// may give another answer.
	failed(s *server, err error) bool
	close()
}

// fixed is a route to one server.
type fixed struct{ s *server }

func (f fixed) pick(context.Context, int) (*server, error) { return f.s, nil }
func (f fixed) failed(*server, error) bool                 { return false }
func (f fixed) close()                                     { f.s.close() }

// outdated tells the answers of a server that has a bucket no more, or not yet. None of them has changed anything.
func outdated(err error) bool {
	return says(err, "READONLY", "MOVED", "ASK ", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "LOADING")
}

// said is what one server answered.
type said[T any] struct {
	v   T
	err error
}

// askAll asks all servers at once, so that one that is dead costs nothing, and returns the answers: at the latest when
// enough says so or all have answered, and a moment after the first otherwise.
func askAll[T any](ctx context.Context, servers []*server, ask func(context.Context, *goredis.Client) (T, error),
	enough func([]T) bool,
) ([]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan said[T], len(servers))
	for _, s := range servers {
		go func() {
			var a said[T]
			_, a.err = s.do(ctx, func(ctx context.Context, c *goredis.Client) (err error) {
				a.v, err = ask(ctx, c)
				return err
			})
			a.err = at(s, a.err)
			ch <- a
		}()
	}
	var answers []T
	var last error
	var late <-chan time.Time
	for range servers {
		select {
		case a := <-ch:
			if a.err != nil {
				last = a.err
				continue
			}
			if answers = append(answers, a.v); enough(answers) {
				return answers, nil
			}
			if late == nil {
				late = time.After(100 * time.Millisecond)
			}
		case <-late:
			return answers, nil
		}
	}
	if len(answers) > 0 {
		return answers, nil
	}
	return nil, last
}

// known is a set of servers by address, so that their connections outlive a change of roles.
type known struct {
	mu sync.Mutex
	m  map[string]*server
	c  *config

	closed bool
}

func (k *known) get(addr string) *server {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = map[string]*server{}
	}
	if k.m[addr] == nil {
		k.m[addr] = k.c.server(addr)
		k.m[addr].closed = k.closed
	}
	return k.m[addr]
}

func (k *known) all() (list []*server) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.m {
		list = append(list, s)
	}
	return list
}

func (k *known) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	for _, s := range k.all() {
		s.close()
	}
}

// pause waits for about d, with jitter, or until ctx ends, and tells which.
func pause(ctx context.Context, d time.Duration) bool {
	return backends.Sleep(ctx, d/2+rand.N(d))
}

// movedTo is the address in a MOVED or ASK answer, "" where there is none.
func movedTo(err error) string {
	if f := strings.Fields(replyText(err)); len(f) == 3 && (f[0] == "MOVED" || f[0] == "ASK") {
		return f[2]
	}
	return ""
}
