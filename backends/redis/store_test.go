package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
)

// store is a prefix of its own on some servers, and a way into it past the backend's operations.
type store struct {
	t     testing.TB
	url   string
	nodes []*node // one; of a quorum, all
	c     *config
}

var prefixes atomic.Int64

// newStore makes names that no other store of this test process has.
func newStore(t testing.TB, url string) *store {
	t.Helper()
	join := "?"
	if strings.Contains(url, "?") {
		join = "&"
	}
	s := &store{t: t, url: fmt.Sprintf("%s%sprefix=t%d:", url, join, prefixes.Add(1))}
	switch b := s.open(backends.Options{}).(type) {
	case *backend:
		s.nodes, s.c = []*node{b.node}, b.c
		t.Cleanup(func() { b.Close() })
	case *quorum:
		s.nodes, s.c = b.nodes, b.c
		t.Cleanup(func() { b.Close() })
	}
	return s
}

func (s *store) suite() *backendtest.Store {
	st := &backendtest.Store{Open: s.open, Expire: s.expire, Remove: s.remove, Dump: s.dump, Foreign: s.foreign}
	if len(s.nodes) > 1 {
		st.Blur = 100 * time.Millisecond // on a busy machine the copies are written that far apart
	}
	return st
}

func (s *store) open(o backends.Options) backends.Backend {
	s.t.Helper()
	return open(s.t, s.url, o)
}

func open(t testing.TB, url string, o backends.Options) backends.Backend {
	t.Helper()
	u, err := backends.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(context.Background(), u, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is open with a cleanup.
func opened(t testing.TB, url string, o backends.Options) backends.Backend {
	t.Helper()
	b := open(t, url, o)
	t.Cleanup(func() { b.Close() })
	return b
}

// each runs a command on every server that has the key.
func (s *store) each(key string, f command) {
	s.t.Helper()
	for _, n := range s.nodes {
		if err := n.call(context.Background(), "test", bucketOf(key), repeatable, f); err != nil {
			s.t.Fatal(err)
		}
	}
}

// rewrite changes the header of every slot of a key.
func (s *store) rewrite(key string, change func(words []string)) {
	s.t.Helper()
	lease := s.c.names(key).lease
	s.each(key, func(ctx context.Context, c *goredis.Client) error {
		hash, err := c.HGetAll(ctx, lease).Result()
		for name, text := range hash {
			head, tail, _ := strings.Cut(text, "\n")
			if words := strings.Fields(head); len(words) == 9 && err == nil {
				change(words)
				err = c.HSet(ctx, lease, name, strings.Join(words, " ")+"\n"+tail).Err()
			}
		}
		return err
	})
}

// expire makes leases end at the moment they began; minimum holds stay.
func (s *store) expire(key string) {
	s.rewrite(key, func(words []string) { words[6] = words[4] })
}

func (s *store) remove(key string) {
	lease := s.c.names(key).lease
	s.each(key, func(ctx context.Context, c *goredis.Client) error {
		names, err := c.HKeys(ctx, lease).Result()
		for _, name := range names {
			if err == nil && strings.TrimLeft(name, "s0123456789") == "" {
				err = c.HDel(ctx, lease, name).Err()
			}
		}
		return err
	})
}

// foreign puts another program's list where the leases of key would be, on each server.
func (s *store) foreign(key string) func() string {
	lease := s.c.names(key).lease
	s.each(key, func(ctx context.Context, c *goredis.Client) error { return c.RPush(ctx, lease, "not ours").Err() })
	return func() string {
		var all []string
		s.each(key, func(ctx context.Context, c *goredis.Client) error {
			text, err := c.Dump(ctx, lease).Result()
			all = append(all, text)
			return err
		})
		return fmt.Sprintf("%q", all)
	}
}

func (s *store) dump(key string) string {
	var all []string
	s.each(key, func(ctx context.Context, c *goredis.Client) error {
		hash, err := c.HGetAll(ctx, s.c.names(key).lease).Result()
		for name, text := range hash {
			all = append(all, fmt.Sprintf("%s %s=%s", c.Options().Addr, name, text))
		}
		return err
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}
