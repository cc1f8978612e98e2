package redis

import (
	"context"
	"errors"
	"net"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// sentinel is a route to whatever server the Sentinels name as the master. They are asked when nobody is known, after
// READONLY, after any failure to talk to the master they named, and beside each renewal: a master that was cut off from
// them goes on granting and renewing until it is told of its demotion, and only they know better.
type sentinel struct {
	name      string
	sentinels []*server
	servers   known

	mu     sync.Mutex
	master *server // nil: has to be asked for
}

func newSentinel(c *config) *sentinel {
	r := &sentinel{name: c.master, servers: known{c: c}}
	for _, addr := range c.addrs {
		s := c.server(addr)
		s.login = login{user: c.sentinelUser, password: c.sentinelPassword, client: c.client}
		r.sentinels = append(r.sentinels, s)
	}
	return r
}

// errNoMaster is the answer of Sentinels that do not know the name.
var errNoMaster = errors.New("the Sentinels know no master of that name")

func (r *sentinel) pick(ctx context.Context, _ int) (*server, error) {
	r.mu.Lock()
	s := r.master
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	addrs, err := askAll(ctx, r.sentinels, r.ask, r.agreed)
	if err != nil {
		return nil, err
	}
	addr := best(addrs)
	if addr == "" {
		return nil, errNoMaster
	}
	s = r.servers.get(addr)
	r.mu.Lock()
	r.master = s
	r.mu.Unlock()
	return s, nil
}

// agreed tells whether more than half of the Sentinels name the same server.
func (r *sentinel) agreed(addrs []string) bool { return votes(addrs, best(addrs)) > len(r.sentinels)/2 }

// deposed tells whether more than half of the Sentinels name another master than the one that is asked. Sentinels that
// are away have no say.
func (r *sentinel) deposed(ctx context.Context) bool {
	r.mu.Lock()
	master := r.master
	r.mu.Unlock()
	if master == nil {
		return false
	}
	addrs, err := askAll(ctx, r.sentinels, r.ask, r.agreed)
	if err != nil || !r.agreed(addrs) || best(addrs) == master.addr {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.master == master {
		r.master = nil
	}
	return true
}

// ask asks one Sentinel; "" says that it does not know the name.
func (r *sentinel) ask(ctx context.Context, c *goredis.Client) (string, error) {
	hp, err := c.Do(ctx, "SENTINEL", "get-master-addr-by-name", r.name).StringSlice()
	if errors.Is(err, goredis.Nil) {
		return "", nil
	}
	if err != nil || len(hp) != 2 {
		return "", errors.Join(err)
	}
	return net.JoinHostPort(hp[0], hp[1]), nil
}

// best is the address that most Sentinels name; one that has been cut off from the others may still name an earlier one.
func best(addrs []string) string {
	top := ""
	for _, a := range addrs {
		if a != "" && (top == "" || votes(addrs, a) > votes(addrs, top)) {
			top = a
		}
	}
	return top
}

func votes(addrs []string, addr string) (n int) {
	for _, a := range addrs {
		if a == addr {
			n++
		}
	}
	return n
}

func (r *sentinel) failed(s *server, err error) bool {
	if isReply(err) && !outdated(err) && !errors.Is(err, errReplicas) { // without replicas it may be the master no more
		return false
	}
	r.mu.Lock()
	if r.master == s {
		r.master = nil
	}
	r.mu.Unlock()
	if s != nil {
		s.drop()
	}
	return true
}

func (r *sentinel) close() {
	r.servers.close()
	for _, s := range r.sentinels {
		s.close()
	}
}
