package recorded_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/backends/recorded"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		var c clock
		leases, records := memory.New(c.lead, backends.Keep{}), memory.New(c.follow, backends.Keep{})
		both := func(f func(s *memory.Store, key string)) func(string) {
			return func(key string) { f(leases, key); f(records, key) }
		}
		return &backendtest.Store{
			Open: func(o backends.Options) backends.Backend {
				return recorded.Decorate(leases.OpenWith(o), func(context.Context) (backends.Backend, error) {
					return records.OpenWith(o), nil
				}, recorded.Options{Timeout: 5 * time.Second, Warn: func(text string) { t.Log(text) }})
			},
			Expire: both((*memory.Store).Expire), Remove: both((*memory.Store).Remove),
			Dump: func(key string) string {
				_, rows, _ := strings.Cut(leases.Dump(key), "\n") // tokens are used up by what is refused later
				return rows + records.Dump(key)
			},
			RecordedAs: "memory:",
		}
	})
}

// clock is one that both stores have: what one operation does in the record store right after the other has the same time.
type clock struct {
	mu   sync.Mutex
	last time.Time
}

func (c *clock) lead() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	return c.last
}

func (c *clock) follow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) > 20*time.Millisecond {
		c.last = now
	}
	return c.last
}
