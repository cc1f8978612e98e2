package redis

import (
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

func TestSlots(t *testing.T) {
	for tag, want := range map[string]int{"": 0, "123456789": 12739, "foo": 12182, "00": slotOf("00")} { // from the Cluster specification
		if got := slotOf(tag); got != want {
			t.Errorf("slotOf(%q) = %d, want %d", tag, got, want)
		}
	}
	// The tags have to spread: a quarter more than its share is the most that one of three masters may get.
	var n [3]int
	for b := range buckets {
		n[slotOf(fmt.Sprintf("%02x", b))*3/slots]++
	}
	for _, k := range n {
		if k > buckets*10/24 || k < buckets/4 {
			t.Errorf("the buckets of three masters: %v", n)
		}
	}
}

// TestNames: different keys never share a name, whatever braces and colons are in them.
func TestNames(t *testing.T) {
	c, err := configOf("redis://h", backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"k", "{k", "k}", "{}", "{a}{b}", "{a}", ":", "k:", "keys", "lease:k", "{00}:lease:k", "\n", " ", "%7B", "ключ", "é", "e\u0301"}
	for b := range 256 {
		keys = append(keys, strings.Repeat("x", b%7)+string(rune(b+1)))
	}
	seen := map[string]string{}
	for _, key := range keys {
		n := c.names(key)
		for _, name := range []string{n.lease, n.runs, n.skips, n.done, n.tries, n.waiters, n.wake} {
			if other, taken := seen[name]; taken && other != key {
				t.Errorf("%q and %q share the name %q", key, other, name)
			}
			seen[name] = key
			tag := name[strings.IndexByte(name, '{')+1 : strings.IndexByte(name, '}')]
			if want := fmt.Sprintf("%02x", bucketOf(key)); tag != want || !strings.HasPrefix(n.index, "lockrun:{"+tag+"}:") {
				t.Errorf("%q has the tag %q, want %q, and the index %q", key, tag, want, n.index)
			}
		}
		if _, taken := seen[n.index]; taken {
			t.Errorf("the index %q is the name of a key", n.index)
		}
	}
}

func TestTable(t *testing.T) {
	nodes := table(slotMap{from: "10.0.0.9:7000", slots: []goredis.ClusterSlot{
		{Start: 0, End: 99, Nodes: []goredis.ClusterNode{{Addr: "h1:1"}, {Addr: "h2:1"}}},
		{Start: 100, End: slots - 1, Nodes: []goredis.ClusterNode{{Addr: ":7000"}}},
	}})
	if nodes[0] != "h1:1" || nodes[99] != "h1:1" || nodes[100] != "10.0.0.9:7000" || nodes[slots-1] != "10.0.0.9:7000" {
		t.Errorf("%s %s %s %s", nodes[0], nodes[99], nodes[100], nodes[slots-1])
	}
}

func TestSentinelVotes(t *testing.T) {
	for want, addrs := range map[string][]string{"": {"", ""}, "a": {"a", "b", "a"}, "b": {"", "b", ""}, "c": {"c"}} {
		if got := best(addrs); got != want {
			t.Errorf("best(%q) = %q, want %q", addrs, got, want)
		}
	}
}

// FuzzStored: whatever stands in the store, reading it does not panic.
func FuzzStored(f *testing.F) {
	f.Add("a 1 2 L 3 4 5 6 7\n{}")
	f.Add("1 0 1 failed 1 2 3 4\n{}\n\x01H1\na 1 2 L 3 4 5 6 7\n{}")
	f.Add("1 0 1 skipped 1 2 - -\n{}\n\x01P1 0\n{}")
	f.Add("1 - 1 done 1 2 - -\n{}\n\x01D1.5e3")
	f.Fuzz(func(t *testing.T, text string) {
		parseRecord("k", "redis:", text)
		d, err := parseDump("k", micros("1"), map[string]string{"lockrun": "1", "s0": text, "pause": text, "token": text, text: text})
		if err == nil {
			d.states()
			answer{dump: d}.refusal(backends.Request{Key: "k", Slots: 1})
		}
	})
}

// TestUnwrapped: errors inside scripts, as Redis 6.2.14 and 7.0.15 word them.
func TestUnwrapped(t *testing.T) {
	for text, want := range map[string]string{
		"ERR Error running script (call to f_9c6e): @user_script:158: WRONGTYPE Operation against a key":                                                     "WRONGTYPE Operation against a key",
		"ERR Error running script (call to f_9c6e): @user_script: 12: -READONLY You can't write against a read only replica.":                                "READONLY You can't write against a read only replica.",
		"READONLY You can't write against a read only replica. script: 9c6e, on @user_script:262.":                                                           "READONLY You can't write against a read only replica.",
		"ERR Error running script (call to f_9c6e): @user_script:262: @user_script: 262: The user executing the script can't run this command or subcommand": "The user executing the script can't run this command or subcommand",
		"ERR unknown command": "ERR unknown command",
	} {
		if got := unwrapped(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
