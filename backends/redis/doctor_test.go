package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

func examine(t *testing.T, url string) []backends.Check {
	t.Helper()
	return opened(t, url, backends.Options{}).(backends.Doctor).Doctor(within(t, 10*time.Second))
}

// TestDoctorFindsNothing on servers that are well; it names each of them.
func TestDoctorFindsNothing(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{Persist: true})
	for url, servers := range map[string][]*testserver.Redis{q.Servers[0].URL(): q.Servers[:1], q.URL(): q.Servers} {
		checks := examine(t, url)
		var text strings.Builder
		for _, c := range checks {
			if !c.OK || c.Cause == "" || c.Check == "" || c.Backend == "" {
				t.Errorf("%+v", c)
			}
			text.WriteString(c.Check + ": " + c.Cause + "\n")
		}
		for _, word := range []string{"round trip: ", "clock: ", "rights: ", "version: ", "role: ", "eviction: ", "persistence: ", "replicas: "} {
			for _, s := range servers {
				if !strings.Contains(text.String(), word+s.Addr()) {
					t.Errorf("no check %q of %s in\n%s", word, s.Addr(), text.String())
				}
			}
		}
	}
}

func TestDoctorFindings(t *testing.T) {
	evicting := testserver.StartRedis(t, testserver.RedisConfig{Args: []string{"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"}})
	if !failing(examine(t, evicting.URL()), "eviction") {
		t.Error("allkeys-lru passes")
	}
	evicting.Must("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	if failing(examine(t, evicting.URL()), "eviction") {
		t.Error("volatile-lru does not pass")
	}
	evicting.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	evicting.Must("CONFIG", "SET", "maxmemory", "500kb")
	if !failing(examine(t, evicting.URL()), "memory") {
		t.Error("a full server passes")
	}
	if !advised(examine(t, evicting.URL()), "persistence", "appendonly") {
		t.Error("no advice about persistence")
	}

	s := testserver.StartSentinels(t, testserver.SentinelConfig{Replicas: 1})
	if !failing(examine(t, s.Servers[1].URL()), "role") {
		t.Error("a replica passes")
	}
	if !advised(examine(t, s.URL()), "replicas", "wait_replicas") {
		t.Error("no advice about asynchronous replication")
	}

	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{Password: secret})
	q.Servers[2].Kill()
	checks := examine(t, q.URL())
	if !failing(checks, "reach") || !strings.Contains(checks[len(checks)-1].Cause, q.Servers[2].Addr()) {
		t.Errorf("a dead server of a quorum passes: %+v", checks[len(checks)-1])
	}
	for _, c := range examine(t, "redis://"+q.Servers[0].Addr()) {
		if c.OK || !strings.Contains(c.Cause, "NOAUTH") || c.Remedy == "" {
			t.Errorf("without a password: %+v", c)
		}
	}
}

// advised tells whether a check is good, and its remedy says the word.
func advised(checks []backends.Check, name, word string) bool {
	for _, c := range checks {
		if c.Check == name && c.OK && strings.Contains(c.Remedy, word) {
			return true
		}
	}
	return false
}

// TestDoctorOfFrozen ends in time, and examines the other servers all the same.
func TestDoctorOfFrozen(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	q.Servers[0].Freeze()
	b := opened(t, q.URL(), backends.Options{Timeout: time.Second})
	soon(t, 5*time.Second, "doctor", func() {
		checks := b.(backends.Doctor).Doctor(context.Background())
		if !failing(checks, "reach") {
			t.Error("a frozen server passes")
		}
		reached := 0
		for _, c := range checks {
			if c.Check == "persistence" {
				reached++
			}
		}
		if reached != 2 {
			t.Errorf("%d servers were examined, want 2: %+v", reached, checks)
		}
	})
}
