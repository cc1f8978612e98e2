package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSameStore(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "real.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.db", filepath.Join(dir, "link.db")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"", "", true},
		{"sqlite:///a", "sqlite:///a", true},
		{"sqlite:///a", "sqlite:///x/../a", true},
		{"sqlite:///a", "sqlite:///b", false},
		{"sqlite://" + dir + "/real.db", "sqlite://" + dir + "/link.db", true},
		{"redis://h", "redis://h:6379/0", true},
		{"redis://h", "redis://H", true},
		{"redis://u:p@h", "rediss://h/", true},
		{"redis://h/1", "redis://h/2", false},
		{"redis://h?prefix=a:", "redis://h?prefix=b:", false},
		{"redis://h?prefix=a:", "redis://h?prefix=a:&tls=true", true},
		{"redis://[::1]", "redis://[::1]:6379", true},
		{"redis+quorum://a,b,c", "redis+quorum://c,b,a:6379", true},
		{"redis+sentinel://a/m", "redis+sentinel://a:26379/m", true},
		{"redis+sentinel://a/m", "redis+sentinel://a/n", false},
		{"mysql://u@h/d", "mysql://v@h:3306/d", true},
		{"mysql://u@h/d", "mysql://u@h/e", false},
		{"mysql://h/d", "redis://h/d", false},
		{"not a url", "not a url", true},
		{"not a url", "neither is this", false},
	} {
		a, b := Store{URL: c.a}, Store{URL: c.b, Name: "named"}
		if got := sameStore(a, b); got != (c.same && c.a != "not a url") && c.b != "not a url" {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
		if sameStore(a, b) != sameStore(b, a) {
			t.Errorf("%s and %s are not the same as the other way round", c.a, c.b)
		}
	}
}

func TestStoresByFlagVariableAndFile(t *testing.T) {
	conf := "LOCKRUN_CONFIG=" + file(t, "c.toml", "backend = ['one', 'sqlite:///b']\nrecord = 'two'\non_unavailable = 'fallback'\nfallback = 'three'\n"+
		"[backends.one]\nurl = 'sqlite:///1'\n[backends.two]\nurl = 'sqlite:///2'\n[backends.three]\nurl = 'sqlite:///3'\n[jobs.k]\nbackend = 'one'\n")
	one, b := Store{"sqlite:///1", "one", ""}, Store{URL: "sqlite:///b"}
	if c := good(t, "--key other -- x", conf); len(c.Backends) != 2 || c.Backends[0] != one || c.Backends[1] != b ||
		c.Record.Name != "two" || c.Fallback.URL != "sqlite:///3" {
		t.Errorf("%+v %+v %+v", c.Backends, c.Record, c.Fallback)
	}
	if c := good(t, "--key k -- x", conf); len(c.Backends) != 1 || c.Backends[0] != one {
		t.Errorf("a job's: %+v", c.Backends)
	}
	if c := good(t, "--key k -- x", conf, "LOCKRUN_BACKEND=sqlite:///b\none\n"); len(c.Backends) != 2 || c.Backends[0] != b || c.Backends[1] != one {
		t.Errorf("a variable's: %+v", c.Backends)
	}
	if c := good(t, "--key k -b sqlite:///b -b one -- x", conf, "LOCKRUN_BACKEND=sqlite:///c"); len(c.Backends) != 2 || c.Backends[0] != b || c.Backends[1] != one {
		t.Errorf("flags: %+v", c.Backends)
	}
	if c := good(t, "--key k -- x", conf, "LOCKRUN_ON_UNAVAILABLE=fail"); c.Fallback != nil {
		t.Errorf("a fallback that is not asked for: %+v", c.Fallback)
	}
	for text, why := range map[string]string{"backend = []": "neither a string nor an array", "backend = [1]": "neither a string nor an array", "record = ['a']": "is not a string"} {
		_, problems := settled(t, "--key k -- x", "LOCKRUN_CONFIG="+file(t, "bad.toml", text))
		if len(problems) != 1 || problems[0].code != codeConfig {
			t.Errorf("%s: %v; want %s", text, problems, why)
		}
	}
}
