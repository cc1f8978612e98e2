package backends

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]URL{
		"sqlite:///var/lib/x.db":            {Scheme: "sqlite", Path: "/var/lib/x.db"},
		"sqlite:///srv/a@b/x.db":            {Scheme: "sqlite", Path: "/srv/a@b/x.db"},
		"sqlite:///a%20b%3F.db":             {Scheme: "sqlite", Path: "/a b?.db"},
		"REDIS://h":                         {Scheme: "redis", Hosts: []string{"h"}},
		"redis://:p%40ss@h:1/2":             {Scheme: "redis", Password: "p@ss", HasPassword: true, Hosts: []string{"h:1"}, Path: "/2"},
		"mysql://u@[::1]:3306/db":           {Scheme: "mysql", User: "u", Hosts: []string{"[::1]:3306"}, Path: "/db"},
		"redis+sentinel://s1:1,s2:2/m":      {Scheme: "redis+sentinel", Hosts: []string{"s1:1", "s2:2"}, Path: "/m"},
		"redis://u:a:b=c&d@h":               {Scheme: "redis", User: "u", Password: "a:b=c&d", HasPassword: true, Hosts: []string{"h"}},
		"redis://u:%23%20%2f%3f%c3%bc%25@h": {Scheme: "redis", User: "u", Password: "# /?ü%", HasPassword: true, Hosts: []string{"h"}},
	} {
		u, err := ParseURL(raw)
		if err != nil {
			t.Errorf("ParseURL(%q): %v", raw, err)
			continue
		}
		u.Query = nil
		if !reflect.DeepEqual(*u, want) {
			t.Errorf("ParseURL(%q) = %+v, want %+v", raw, *u, want)
		}
	}
}

func TestAmbiguousPasswordsAreRefusedAndNotEchoed(t *testing.T) {
	for _, special := range []string{"#", "@", "/", "%", "%zz", "?", " ", "ü", "\n", "\\", "[", "@@", "/@", "?@"} {
		secret := "sEcReT" + special + "tAiL"
		raw := "redis://user:" + secret + "@h1:6379/0"
		_, err := ParseURL(raw)
		var usage *UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%q is accepted", raw)
			continue
		}
		for _, s := range []string{err.Error(), Redact(raw)} {
			if strings.Contains(s, "sEcReT") || strings.Contains(s, "tAiL") {
				t.Errorf("%q is echoed in %q", raw, s)
			}
		}
		if !strings.Contains(err.Error(), "encode") {
			t.Errorf("%q does not say to encode", err)
		}
	}
}

func TestURLsRefused(t *testing.T) {
	for _, raw := range []string{"", "lockrun.db", "/var/lib/x.db", "sqlite:/x", "://h", "redis://h:port", "redis://h:1:2",
		"redis://[::1", "redis://[::1]x", "redis://h1,,h2", "redis://u@", "redis://%00", "sqlite:///a%00b", "sqlite:///a%zz", "redis://h?a=%zz", "redis://h?a;b"} {
		var usage *UsageError
		if u, err := ParseURL(raw); !errors.As(err, &usage) {
			t.Errorf("ParseURL(%q) = %+v, %v; want *UsageError", raw, u, err)
		}
	}
}

func TestPortsRefused(t *testing.T) {
	for _, raw := range []string{"redis://h:99999", "redis://h:65536/0", "kafka://a:1,b:0/t", "zookeeper://[::1]:70000/x"} {
		if _, err := ParseURL(raw); err == nil || !strings.Contains(err.Error(), "the port of a host is not between 1 and 65535") {
			t.Errorf("ParseURL(%q): %v", raw, err)
		}
	}
	for _, raw := range []string{"redis://h:65535", "redis://h:1", "redis://h:06379", "redis://[::1]"} {
		if _, err := ParseURL(raw); err != nil {
			t.Errorf("ParseURL(%q): %v", raw, err)
		}
	}
}

// What is wrong with a host is told of the hosts; of passwords only where there may be one.
func TestBadHostsAreToldAsSuch(t *testing.T) {
	for raw, want := range map[string]string{
		"zookeeper://h1,,h2/x":         "the list of hosts has an empty part; leave the extra comma out",
		"zookeeper://h1,/x":            "the list of hosts has an empty part; leave the extra comma out",
		"zookeeper://h1:abc/x":         "the port of a host is not a number; correct it",
		"zookeeper://:2181/x":          "a port has no host in front of it; name the host",
		"zookeeper://::1/x":            "a port has no host in front of it",
		"zookeeper://fe80::1:2181/x":   "brackets",
		"zookeeper://u:p@h1,,h2/x":     "leave the extra comma out; if that is part of the password, encode",
		"zookeeper://u@sEcReT:tAiL/x":  "the port of a host is not a number; correct it, or leave it out for the usual one; if that is part of the password, encode",
		"zookeeper://:sEc@ReT:tAiL/x/": "if that is part of the password, encode",
	} {
		_, err := ParseURL(raw)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseURL(%q): %v, want %q", raw, err, want)
			continue
		}
		if strings.Contains(err.Error(), "password") != strings.Contains(raw, "@") || strings.Contains(err.Error(), "ReT") || strings.Contains(err.Error(), "tAiL") {
			t.Errorf("ParseURL(%q): %v", raw, err)
		}
	}
}

func TestUnknownParametersAreNamed(t *testing.T) {
	u, err := ParseURL("redis://h?tls=true&prefix=x&wat=sEcReT")
	if err != nil {
		t.Fatal(err)
	}
	err = u.Only("tls", "prefix")
	if err == nil || !strings.Contains(err.Error(), `"wat"`) || strings.Contains(err.Error(), "sEcReT") {
		t.Errorf("Only = %v, want the name of the parameter and not its value", err)
	}
	if err := u.Only("tls", "prefix", "wat"); err != nil {
		t.Error(err)
	}
	if u.Param("tls") != "true" || u.Param("none") != "" {
		t.Error("Param does not give the values")
	}
	if u, _ = ParseURL("redis://h?tls=true&tls=false"); u.Only("tls") == nil {
		t.Error("a parameter given twice is accepted")
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://u:sEcReT@h:1/0?ca=/x": "redis://u@h:1/0",
		"redis://:sEcReT@h":            "redis://h",
		"redis://u:sEc@ReT@h":          "redis://...",
		"sEcReT":                       "...",
		"sqlite:///a%20b":              "sqlite:///a%20b",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"sqlite:///x", "redis://u:p@h:1,g:2/0?tls=true", "a://[::1]:2", "x://%00", "redis://u:p@@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := ParseURL(raw)
		if err != nil {
			var usage *UsageError
			if !errors.As(err, &usage) || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if len(u.Password) > 12 && strings.Contains(u.String(), u.Password) && !strings.Contains(u.Path+u.User+strings.Join(u.Hosts, ","), u.Password) {
			t.Fatalf("%q shows its password", u)
		}
		again, err := ParseURL(u.String())
		if err != nil || again.Path != u.Path || again.User != u.User || !reflect.DeepEqual(again.Hosts, u.Hosts) {
			t.Fatalf("%q reads as %+v, %v instead of %+v", u.String(), again, err, u)
		}
		u.Only()
	})
}
