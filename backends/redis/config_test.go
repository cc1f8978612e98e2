package redis

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

func configOf(raw string, o backends.Options) (*config, error) {
	u, err := backends.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	return configure(u, o)
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://":                                    "tcp localhost:6379 0",
		"redis://h":                                   "tcp h:6379 0",
		"redis://h:1/7":                               "tcp h:1 7",
		"redis://[::1]":                               "tcp [::1]:6379 0",
		"redis://[::1]:7/0":                           "tcp [::1]:7 0",
		"rediss://h":                                  "tcp h:6379 0",
		"redis:///?socket=/run/r.sock":                "unix /run/r.sock 0",
		"redis:///2?socket=/run/r.sock":               "unix /run/r.sock 2",
		"redis+sentinel://a,b:1,[::2]/mymaster":       "tcp a:26379,b:1,[::2]:26379 0 mymaster",
		"redis+sentinel://a/m/4":                      "tcp a:26379 4 m",
		"redis+cluster://a,b:1":                       "tcp a:6379,b:1 0",
		"redis+quorum://a,b,c/3":                      "tcp a:6379,b:6379,c:6379 3",
		"redis+quorum://a,b,c?tls=true":               "tcp a:6379,b:6379,c:6379 0",
		"redis://h?client_name=x&prefix=p:&tls=false": "tcp h:6379 0",
	} {
		c, err := configOf(raw, backends.Options{})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := strings.TrimSpace(c.network + " " + strings.Join(c.addrs, ",") + " " + itoa(c.db) + " " + c.master)
		if got != want {
			t.Errorf("%s = %q, want %q", raw, got, want)
		}
	}
}

func TestWrongURLs(t *testing.T) {
	for raw, word := range map[string]string{
		"redis://a,b":                          "more than one host",
		"redis://h/x":                          "number of a database",
		"redis://h/-1":                         "number of a database",
		"redis://h/1/2":                        "too many parts",
		"redis://h?nosuch=1":                   `unknown parameter "nosuch"`,
		"redis://h?sentinel_user=u":            `unknown parameter "sentinel_user"`,
		"redis://h?ca=/x":                      "no TLS is asked for",
		"redis://h?server_name=x":              "no TLS is asked for",
		"redis://h?tls=maybe":                  "neither true nor false",
		"rediss://h?tls=false":                 "neither true nor false",
		"rediss://h?ca=/nonexistent":           "/nonexistent",
		"rediss://h?cert=/nonexistent":         "/nonexistent",
		"rediss://h?key=/nonexistent":          "without cert",
		"rediss://h?ca=/dev/null":              "holds no certificate",
		"redis://h?socket=/x":                  "both a host and a socket",
		"redis:///?socket=x":                   "absolute path",
		"redis:///?socket=":                    "absolute path",
		"redis:///?socket=/x&tls=true":         "needs no TLS",
		"redis://h?prefix=a{b}":                "brace",
		"redis://h?client_name=a%20b":          "client_name",
		"redis://h?wait_replicas=-1":           "wait_replicas",
		"redis://h?wait_replicas=":             "wait_replicas",
		"redis+sentinel://a":                   "does not name the master",
		"redis+sentinel:///m":                  "there is no host",
		"redis+sentinel://a/m?sentinel_user=u": "has no password",
		"redis+sentinel://a/m?sentinel_password_file=/nonexistent": "/nonexistent",
		"redis+sentinel://a/m?sentinel_password_file=/dev/null":    "is empty",
		"redis+cluster://a/3":       "no database but 0",
		"redis+cluster://":          "there is no host",
		"redis+quorum://a,b":        "survives no failure",
		"redis+quorum://a,b,A:6379": "named twice",
	} {
		_, err := configOf(raw, backends.Options{})
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), word) || usage.Remedy == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a *UsageError that says %q and a remedy", raw, err, word)
		}
	}
}

// TestSecrets is CFG-02: any password works, encoded in the URL or from a file, and no message has it.
func TestSecrets(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{Password: secret})
	server.Must("ACL", "SETUSER", "job:runner", "on", ">"+secret, "~*", "&*", "+@all")
	encoded := "s3cr%23t%20%40%2F%25%3A%3F%26%3D%C3%BC"
	for _, c := range []struct{ url, password string }{
		{"redis://:" + encoded + "@" + server.Addr(), ""},
		{"redis://" + server.Addr(), secret},
		{"redis://job%3Arunner:" + encoded + "@" + server.Addr(), ""},
		{"redis://job%3Arunner@" + server.Addr(), secret},
		{"redis:///?socket=" + server.Socket(), secret},
	} {
		b := opened(t, c.url, backends.Options{Password: c.password})
		l := acquire(t, b, request("k"))
		release(t, l)
		if strings.Contains(b.Name(), "s3cr") {
			t.Errorf("the name is %q", b.Name())
		}
	}
	b := opened(t, "redis://"+server.Addr(), backends.Options{Password: secret + "x"})
	_, err := b.Acquire(context.Background(), request("k"))
	unknown(t, err, true, "WRONGPASS")
	// What is no Redis may echo what it was sent.
	c := &config{password: secret}
	if text := c.explain("acquire", "x", serverError("ERR unknown command 'AUTH', with args beginning with: '"+secret+"'")).Error(); strings.Contains(text, "s3cr") {
		t.Errorf("the password is in %q", text)
	}
}

func TestIPv6(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{Args: []string{"--bind", "127.0.0.1", "-::1"}})
	b := opened(t, "redis://[::1]:"+itoa(server.Port()), backends.Options{})
	if _, err := b.Now(context.Background()); err != nil {
		if strings.Contains(err.Error(), "cannot assign") || strings.Contains(err.Error(), "unreachable") {
			t.Skip("no IPv6 here: ", err)
		}
		t.Fatal(err)
	}
	release(t, acquire(t, b, request("k")))
}

func TestTLS(t *testing.T) {
	certs := testserver.NewCerts(t)
	for name, server := range map[string]*testserver.Redis{
		"plain":  testserver.StartRedis(t, testserver.RedisConfig{TLS: certs, Password: secret}),
		"mutual": testserver.StartRedis(t, testserver.RedisConfig{TLS: certs, Mutual: true}),
	} {
		release(t, acquire(t, opened(t, server.URL(), backends.Options{}), request("k")))
		release(t, acquire(t, opened(t, server.URL()+"&server_name="+testserver.ServerName, backends.Options{}), request("k")))
		asQuorum := strings.Replace(server.URL(), "rediss:", "redis:", 1) + "&tls=true"
		release(t, acquire(t, opened(t, asQuorum, backends.Options{}), request(name)))
	}
}

// TestSystemRoots: SSL_CERT_FILE is read once in a process, so it takes another one.
func TestSystemRoots(t *testing.T) {
	if url := os.Getenv("TEST_REDIS_URL"); url != "" {
		release(t, acquire(t, opened(t, url, backends.Options{}), request("k")))
		return
	}
	certs := testserver.NewCerts(t)
	server := testserver.StartRedis(t, testserver.RedisConfig{TLS: certs})
	for _, ca := range []string{certs.CAFile, testserver.NewCerts(t).CAFile} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSystemRoots$", "-test.count=1")
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca, "SSL_CERT_DIR="+t.TempDir(), "TEST_REDIS_URL=rediss://"+server.Addr())
		out, err := cmd.CombinedOutput()
		if good := ca == certs.CAFile; (err == nil) != good {
			t.Errorf("with SSL_CERT_FILE=%s: %v\n%s", ca, err, out)
		}
	}
}

// TestConnectionSettings: database, client name and prefix.
func TestConnectionSettings(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL()+"/5?client_name=night-jobs&prefix=jobs:", backends.Options{})
	acquire(t, b, request("k"))
	clients := server.Must("CLIENT", "LIST").(string)
	if !strings.Contains(clients, "name=night-jobs") || !strings.Contains(clients, "db=5") {
		t.Errorf("CLIENT LIST = %s", clients)
	}
	var keys []string
	err := b.(*backend).node.call(context.Background(), "test", 0, repeatable, func(ctx context.Context, c *goredis.Client) (err error) {
		keys, err = c.Keys(ctx, "*").Result()
		return err
	})
	if err != nil || len(keys) != 2 {
		t.Errorf("database 5 has %q, %v", keys, err)
	}
	for _, k := range keys {
		if !strings.HasPrefix(k, "jobs:{") {
			t.Errorf("%q has not the prefix", k)
		}
	}
	if n := server.Must("DBSIZE"); n != int64(0) {
		t.Errorf("database 0 has %v keys", n)
	}
	refused(t, opened(t, server.URL()+"/5?prefix=jobs:", backends.Options{}), request("k"))
	acquire(t, opened(t, server.URL()+"/5", backends.Options{}), request("k"))
}

// TestRights: the rights that the documentation lists are enough for everything, and those of a reader for asking.
func TestRights(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	for _, line := range aclLines(t) {
		words := strings.Fields(strings.ReplaceAll(line, "PASSWORD", "pw"))
		server.Must(words...)
	}
	url := func(user string) string { return "redis://" + user + ":pw@" + server.Addr() }
	b := opened(t, url("lockrun"), backends.Options{})
	everything(t, b)
	for _, c := range b.(backends.Doctor).Doctor(context.Background()) {
		if !c.OK {
			t.Errorf("doctor: %+v", c)
		}
	}
	l := acquire(t, b, request("held"))

	reader := opened(t, url("lockrun-reader"), backends.Options{ReadOnly: true})
	if s := stateOf(t, reader, "held"); s.State != backends.Held {
		t.Errorf("a reader sees %+v", s)
	}
	if all, err := reader.Status(context.Background()); err != nil || len(all) != 2 {
		t.Errorf("a reader's Status = %+v, %v", all, err)
	}
	if h, err := reader.History(context.Background(), backends.Query{}); err != nil || len(h) == 0 {
		t.Errorf("a reader's History = %+v, %v", h, err)
	}
	if _, err := reader.Now(context.Background()); err != nil {
		t.Error(err)
	}
	_, err := reader.Acquire(context.Background(), request("k"))
	unknown(t, err, true, "NOPERM", "rights")
	release(t, l)

	server.Must("ACL", "SETUSER", "lockrun", "-hset")
	_, err = b.Acquire(context.Background(), request("k"))
	unknown(t, err, true, "rights")
	checks := b.(backends.Doctor).Doctor(context.Background())
	if !failing(checks, "rights") && !advised(checks, "rights", "an acquire tells") { // Redis 6 has no ACL DRYRUN
		t.Error("doctor does not miss the right to HSET")
	}
}

// aclLines are the ACL commands in the documentation.
func aclLines(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "backends", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, line := range strings.Split(joined, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ACL SETUSER ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 {
		t.Fatalf("%d ACL lines in the documentation, want 2", len(lines))
	}
	return lines
}

// everything uses each operation once.
func everything(t *testing.T, b backends.Backend) {
	t.Helper()
	ctx := context.Background()
	r := loose(request("k"))
	r.RunID = "r1"
	l := acquire(t, b, r)
	rival := request("k")
	rival.Last = true
	refused(t, b, rival)
	attached, err := b.Attach(ctx, "k", l.Grant().Token)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"Renew":  func() error { return attached.Renew(ctx, r.TTL) },
		"Record": func() error { return b.Record(ctx, backends.Record{Key: "k", Outcome: backends.Unavailable}) },
		"Pause":  func() error { return b.Pause(ctx, "k", backends.Pause{By: "ops"}) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	release(t, l)
	waiting := make(chan error, 1)
	go func() { waiting <- b.(backends.Waiter).Wait(ctx, request("k")) }()
	if err := b.Resume(ctx, "k"); err != nil {
		t.Errorf("Resume: %v", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("Wait: %v", err)
	}
	acquire(t, b, request("k"))
	if _, err := b.Break(ctx, "k", 0, "ops"); err != nil {
		t.Errorf("Break: %v", err)
	}
	if err := b.Abandon(ctx, request("k")); err != nil {
		t.Errorf("Abandon: %v", err)
	}
	if _, err := b.Status(ctx); err != nil {
		t.Errorf("Status: %v", err)
	}
	if _, err := b.History(ctx, backends.Query{}); err != nil {
		t.Errorf("History: %v", err)
	}
	if _, err := b.Now(ctx); err != nil {
		t.Errorf("Now: %v", err)
	}
}
