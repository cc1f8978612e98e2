package redis

import (
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/backends/multi"
	"github.com/lockrun/lockrun/internal/testserver"
)

// A lease that has to be held here and in a store that keeps it in another way, whichever is asked first.
func TestConformanceBesideAnother(t *testing.T) {
	url := testserver.StartRedis(t, testserver.RedisConfig{}).URL()
	for _, first := range []string{"memory", "redis"} {
		t.Run(first+" first", func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) *backendtest.Store {
				here, there := newStore(t, url), memory.New(nil, backends.Keep{})
				order := func(o backends.Options) []backends.Backend {
					if first == "memory" {
						return []backends.Backend{there.OpenWith(o), here.open(o)}
					}
					return []backends.Backend{here.open(o), there.OpenWith(o)}
				}
				recordedAs := "memory:"
				if first == "redis" {
					recordedAs = opened(t, here.url, backends.Options{}).Name()
				}
				return &backendtest.Store{
					Open:       func(o backends.Options) backends.Backend { return multi.New(order(o), 5*time.Second) },
					Expire:     func(key string) { here.expire(key); there.Expire(key) },
					Remove:     func(key string) { here.remove(key); there.Remove(key) },
					Dump:       func(key string) string { return here.dump(key) + there.Dump(key) },
					RecordedAs: recordedAs,
				}
			})
		})
	}
}
