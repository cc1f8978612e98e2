package backends

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestKeysRefused(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"", strings.Repeat("k", 256), "a\x00b", "a\xffb"} {
		err := CheckKey(key)
		var usage *UsageError
		if !errors.As(err, &usage) {
			t.Errorf("CheckKey(%.20q) = %v, want *UsageError", key, err)
			continue
		}
		if other, dup := seen[usage.Why]; dup {
			t.Errorf("%.20q and %.20q are refused with the same sentence %q", key, other, usage.Why)
		}
		seen[usage.Why] = key
	}
}

func TestKeysAllowed(t *testing.T) {
	for _, key := range []string{"a", "a/b", "/a", "..", "__x__", "a b", "a%2Fb", "ключ", "-rf", "a\nb", "job ", strings.Repeat("k", 255)} {
		if err := CheckKey(key); err != nil {
			t.Errorf("CheckKey(%.20q) = %v", key, err)
		}
	}
}

func TestNamesShownInListingsStayOnOneLine(t *testing.T) {
	for _, check := range []func(string) error{CheckHolder, CheckRunID, CheckReason} {
		if err := check("nightly 2026-11-30T01:00 ü"); err != nil {
			t.Error(err)
		}
		if err := check(""); err != nil {
			t.Error(err)
		}
		for _, s := range []string{"a\nb", "a\x1b[2Jb", "a\u2028b", "a\xff", strings.Repeat("x", 2000), "a\u009bb"} {
			if check(s) == nil {
				t.Errorf("%.20q is allowed", s)
			}
		}
	}
}

func TestOwnersAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		o := NewOwner()
		if err := CheckOwner(o); err != nil || seen[o] {
			t.Fatalf("owner %q: %v, seen before: %v", o, err, seen[o])
		}
		seen[o] = true
	}
	if CheckOwner(strings.Repeat("G", 32)) == nil || CheckOwner("abc") == nil {
		t.Error("an owner of the wrong form is allowed")
	}
}

func TestRequestsRefused(t *testing.T) {
	good := Request{Key: "k", Owner: NewOwner(), TTL: time.Second, Slots: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Request){
		"ttl":    func(r *Request) { r.TTL = 0 },
		"slots":  func(r *Request) { r.Slots = 0 },
		"hold":   func(r *Request) { r.HoldAtLeast = -1 },
		"key":    func(r *Request) { r.Key = "" },
		"owner":  func(r *Request) { r.Owner = "me" },
		"holder": func(r *Request) { r.Holder = "a\nb" },
		"run id": func(r *Request) { r.RunID = "a\nb" },
	} {
		r := good
		spoil(&r)
		var usage *UsageError
		if !errors.As(r.Check(), &usage) {
			t.Errorf("%s: not refused", name)
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"", "a", "a\x00", "\xff", strings.Repeat("é", 128)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		allowed := len(key) >= 1 && len(key) <= 255 && utf8.ValidString(key) && !strings.Contains(key, "\x00")
		err := CheckKey(key)
		if (err == nil) != allowed {
			t.Fatalf("CheckKey(%q) = %v, allowed by the rule: %v", key, err, allowed)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\x00") {
			t.Fatalf("%q is more than a line of text", err)
		}
	})
}
