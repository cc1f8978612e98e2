package zookeeper

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

func configured(t *testing.T, raw, password string) (*config, error) {
	t.Helper()
	u, err := backends.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	return configure(u, backends.Options{Password: password})
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]config{
		"zookeeper://h":                             {hosts: []string{"h:2181"}, root: "/lockrun", name: "zookeeper://h/lockrun"},
		"zookeeper://h/":                            {hosts: []string{"h:2181"}, root: "/lockrun", name: "zookeeper://h/lockrun"},
		"zookeeper://h1:1,h2:2,[::1]:3/a/b/":        {hosts: []string{"h1:1", "h2:2", "[::1]:3"}, root: "/a/b", name: "zookeeper://h1:1,h2:2,[::1]:3/a/b"},
		"zookeeper://[::1],h2/a":                    {hosts: []string{"[::1]:2181", "h2:2181"}, root: "/a", name: "zookeeper://[::1],h2/a"},
		"zookeeper://u:p%3A%40%2F%20%C3%BC@h/a%20b": {hosts: []string{"h:2181"}, root: "/a b", name: "zookeeper://u@h/a%20b", user: "u", password: "p:@/ ü"},
	} {
		c, err := configured(t, raw, "")
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if !slices.Equal(c.hosts, want.hosts) || c.root != want.root || c.name != want.name || c.user != want.user || c.password != want.password {
			t.Errorf("%s: %+v", raw, c)
		}
	}
	if c, err := configured(t, "zookeeper://u@h", "from a file"); err != nil || c.password != "from a file" {
		t.Errorf("a password from elsewhere: %+v, %v", c, err)
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"zookeeper:///a":                       "no host",
		"zookeeper://h/a//b":                   "empty part",
		"zookeeper://h/a/../b":                 "part ..",
		"zookeeper://h/%0Aa":                   "does not allow",
		"zookeeper://h/zookeeper/x":            "servers themselves",
		"zookeeper://h?partitions=3":           "partitions",
		"zookeeper://h?tls=yes":                "tls",
		"zookeeper://h?ca=/x":                  "no TLS is asked for",
		"zookeeper://h?tls=true&ca=/nowhere":   "ca cannot be read",
		"zookeeper://h?tls=true&key=/nowhere":  "without cert",
		"zookeeper://h?tls=true&cert=/nowhere": "cannot be used",
		"zookeeper://u@h":                      "without a password",
		"zookeeper://u:@h":                     "without a password",
		"zookeeper://:secret@h":                "without a user",
		"zookeeper://a%3Ab:secret@h":           "':'",
	} {
		_, err := configured(t, raw, "")
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a usage error with %q", raw, err, want)
		}
	}
}

func TestNamesAreInjective(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"a", "A", "a/b", "a%2Fb", "a%252Fb", ".", "..", "%", "%25", "%2E", "ключ", "a b", "\x01", "zookeeper", "lease-x", strings.Repeat("ü", 127)} {
		name := encode(key)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", key, other, name)
		}
		seen[name] = key
		if back, ok := decode(name); !ok || back != key {
			t.Errorf("%q became %s and then %q", key, name, back)
		}
	}
	for _, name := range []string{"a%", "a%2", "a%2f", "%41", "a.b", "a%zz"} {
		if key, ok := decode(name); ok {
			t.Errorf("%s is nobody's name, and was read as %q", name, key)
		}
	}
	ids := map[string]bool{}
	for _, id := range []string{"r", "R", "2026-11-30T01:00:00Z", strings.Repeat("r", 64), strings.Repeat("r", 65), strings.Repeat("r", 66), "%" + strings.Repeat("0", 64)} {
		ids[idPath("", id)] = true
	}
	if len(ids) != 7 {
		t.Errorf("%d different nodes for 7 run ids", len(ids))
	}
}

func TestTokensFollowTransactions(t *testing.T) {
	for _, c := range []struct{ last, zxid, told, want int64 }{
		{0, 7, 0, 7}, {9, 7, 0, 10}, {9, 9, 0, 10}, {9, 12, 0, 12}, {5, mostToken, 0, 6},
		{9, 100, 50, 50}, {60, 100, 50, 61}, {0, 100, 1, 1},
	} {
		if got := nextToken(c.last, c.zxid, c.told); got != c.want {
			t.Errorf("after %d in transaction %d, told %d: %d, want %d", c.last, c.zxid, c.told, got, c.want)
		}
	}
}
