package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	path := strings.TrimPrefix(conf, "LOCKRUN_CONFIG=")
	one := Store{URL: "sqlite:///1", Name: "one", From: path + ":6"}
	b := func(from string) Store { return Store{URL: "sqlite:///b", From: from} }
	c := good(t, "--key other -- x", conf)
	if !slices.Equal(c.Backends, []Store{one, b(path + ":1")}) || c.Record.Name != "two" || c.Fallback.URL != "sqlite:///3" {
		t.Errorf("%+v %+v %+v", c.Backends, c.Record, c.Fallback)
	}
	if c := good(t, "--key k -- x", conf); !slices.Equal(c.Backends, []Store{one}) {
		t.Errorf("a job's: %+v", c.Backends)
	}
	c = good(t, "--key k -- x", conf, "LOCKRUN_BACKEND=sqlite:///b\none\n")
	if !slices.Equal(c.Backends, []Store{b("LOCKRUN_BACKEND"), one}) {
		t.Errorf("a variable's: %+v", c.Backends)
	}
	c = good(t, "--key k -b sqlite:///b -b one -- x", conf, "LOCKRUN_BACKEND=sqlite:///c")
	if !slices.Equal(c.Backends, []Store{b("--backend"), one}) {
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

// Whoever has several stores, or a variable that he does not remember, has to be told which of them is wrong.
func TestAWrongURLIsToldWithThePlaceWhereItWasWritten(t *testing.T) {
	path := file(t, "c.toml", "backend = 'prod'\n[backends.prod]\nurl = 'redis://h?nosuch=1'\n[backends.dev]\nurl = 'bare'\n")
	for _, c := range []struct{ env, args, says string }{
		{"LOCKRUN_CONFIG=" + path, "", path + ":3: redis URL: unknown parameter"},
		{"LOCKRUN_CONFIG=" + path, "-b dev", path + ":5: backend URL: it does not begin with a scheme"},
		{"LOCKRUN_BACKEND=nosuch://h/", "", "LOCKRUN_BACKEND: backend nosuch://h/: this lockrun knows no scheme nosuch"},
		{"", "-b sqlite:///nosuch/x.db?a=1", "--backend: sqlite URL: unknown parameter"},
		{"", "-b sqlite://" + t.TempDir() + "/x.db --record redis://h:x/", "--record: redis URL: the port"},
		{"LOCKRUN_FALLBACK=redis://h:x/", "--on-unavailable fallback -b sqlite:///nosuch/x.db", "LOCKRUN_FALLBACK: redis URL: the port"},
	} {
		got := invoke(t, openBackend, []string{c.env}, append(strings.Fields(c.args), "--key", "k", "--", "true")...)
		if got.code != codeUsage || !strings.HasPrefix(got.err, "lockrun: "+c.says) {
			t.Errorf("%s %s: %d %s", c.env, c.args, got.code, got.err)
		}
	}
}
