package firestore

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

func TestURLs(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", "")
	for raw, want := range map[string]string{
		"firestore://p1/jobs":                                       "https://firestore.googleapis.com projects/p1/databases/(default)/documents/jobs/k firestore://p1/jobs",
		"firestore://p1/jobs?database=two":                          "https://firestore.googleapis.com projects/p1/databases/two/documents/jobs/k firestore://p1/jobs?database=two",
		"firestore://p1/a/b/jobs":                                   "https://firestore.googleapis.com projects/p1/databases/(default)/documents/a/b/jobs/k firestore://p1/a/b/jobs",
		"firestore://example.com:p1/jobs":                           "https://firestore.googleapis.com projects/example.com:p1/databases/(default)/documents/jobs/k firestore://example.com:p1/jobs",
		"firestore://p1/jobs?emulator=localhost:8080":               "http://localhost:8080 projects/p1/databases/(default)/documents/jobs/k firestore://p1/jobs",
		"firestore://p1/jobs?endpoint=firestore.eu.rep.example":     "https://firestore.eu.rep.example projects/p1/databases/(default)/documents/jobs/k firestore://p1/jobs",
		"firestore://p1/jobs?endpoint=https://x.example/":           "https://x.example projects/p1/databases/(default)/documents/jobs/k firestore://p1/jobs",
		"firestore://p1/jobs?credentials=/k.json&quota_project=pay": "https://firestore.googleapis.com projects/p1/databases/(default)/documents/jobs/k firestore://p1/jobs",
	} {
		b := opened(t, raw, backends.Options{})
		if got := b.endpoint.String() + " " + b.names.lease("k") + " " + b.Name(); got != want {
			t.Errorf("%s is %s, want %s", raw, got, want)
		}
	}
	t.Setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
	if b := opened(t, "firestore://p1/jobs", backends.Options{}); b.endpoint.String() != "http://127.0.0.1:1" || !b.emulator {
		t.Errorf("with an emulator in the environment %s is asked", b.endpoint.String())
	}
	if b := opened(t, "firestore://p1/jobs?endpoint=x.example", backends.Options{}); b.emulator {
		t.Error("an endpoint in the URL gives way to the emulator in the environment")
	}
}

func TestWrongURLs(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", "")
	for raw, part := range map[string]string{
		"firestore:///jobs":                                   "project",
		"firestore://p1":                                      "no collection",
		"firestore://p1/":                                     "no collection",
		"firestore://p1/a/b":                                  "document",
		"firestore://p1/a//b":                                 "name",
		"firestore://p1/__x__":                                "name",
		"firestore://p1/..":                                   "name",
		"firestore://P1/jobs":                                 "project",
		"firestore://p1,p2/jobs":                              "project",
		"firestore://p1:80/jobs":                              "project",
		"firestore://example.com:80/jobs":                     "project",
		"firestore://u:hunter2@example.com:p1/jobs":           "user",
		"firestore://u:hunter2@p1/jobs":                       "user",
		"firestore://p1/jobs?databse=x":                       "databse",
		"firestore://p1/jobs?database=A%2FB":                  "database",
		"firestore://p1/jobs?emulator=http%3A%2F%2Fa%2Fb":     "host:port",
		"firestore://p1/jobs?endpoint=http%3A%2F%2Fx.example": "https",
		"firestore://p1/jobs?emulator=127.0.0.1":              "host:port",
		"firestore://p1/jobs?emulator=127.0.0.1:":             "host:port",
		"firestore://p1/jobs?emulator=127.0.0.1:0":            "host:port",
		"firestore://p1/jobs?emulator=":                       "emulator is empty",
		"firestore://p1/jobs?database=":                       "database is empty",
		"firestore://p1/jobs?emulator=a:1&endpoint=x.example": "both emulator and endpoint",
		"firestore://p1/jobs?endpoint=x.example%2Fpath":       "endpoint",
		"firestore://p1/jobs?credentials=key.json":            "absolute",
		"firestore://p1/jobs?quota_project=a%20b":             "quota_project",
	} {
		u, err := backends.ParseURL(raw)
		if err == nil {
			_, err = Open(context.Background(), u, backends.Options{})
		}
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), part) || usage.Remedy == "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestDomainScopedProject: its id has a colon, and so has what is asked for at the end of each address.
func TestDomainScopedProject(t *testing.T) {
	b := opened(t, strings.Replace(freshURL(t), "//lockrun-test/", "//example.com:lockrun-test/", 1), backends.Options{})
	release(t, acquire(t, b, request("k")))
	if s := stateOf(t, b, "k"); s.State != backends.Free || s.Token == 0 {
		t.Errorf("state %+v", s)
	}
}

// TestWrongVariable: what has to be corrected is named, for it does not stand in the URL.
func TestWrongVariable(t *testing.T) {
	u, err := backends.ParseURL("firestore://p1/jobs")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"bogus", "http://", "127.0.0.1:http"} {
		t.Setenv("FIRESTORE_EMULATOR_HOST", v)
		var usage *backends.UsageError
		if _, err := Open(context.Background(), u, backends.Options{}); !errors.As(err, &usage) || !strings.Contains(usage.Remedy, "FIRESTORE_EMULATOR_HOST") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// FuzzEscape: names are those that Firestore takes, and no two strings share one.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"a", ".", "..", "__x__", "____", "%2E", "a/b", "a~b", "\x01", "\u00fc", "\U0001f512", "-rf", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := escape(s)
		if strings.Trim(e, plain+"%") != "" || e == "." || e == ".." || len(e) >= 4 && strings.HasPrefix(e, "__") && strings.HasSuffix(e, "__") {
			t.Errorf("%q becomes %q", s, e)
		}
		if back, err := url.PathUnescape(e); err != nil || back != s {
			t.Errorf("%q becomes %q, and that %q", s, e, back)
		}
	})
}
