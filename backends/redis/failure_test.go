package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// TestNoAnswer is CON-01 and CON-05: whatever is wrong, the answer is that nobody knows, with host, phase and remedy,
// within the time that the caller gave.
func TestNoAnswer(t *testing.T) {
	certs := testserver.NewCerts(t)
	plain := testserver.StartRedis(t, testserver.RedisConfig{})
	locked := testserver.StartRedis(t, testserver.RedisConfig{Password: "right"})
	secured := testserver.StartRedis(t, testserver.RedisConfig{TLS: certs, Mutual: true})
	foreign := testserver.NewCerts(t)
	frozen := testserver.StartRedis(t, testserver.RedisConfig{})
	frozen.Freeze()
	hole := testserver.StartProxy(t, plain.Addr())
	hole.BlackHole()
	refusing := testserver.StartProxy(t, plain.Addr())
	refusing.Refuse()
	ca := "?ca=" + certs.CAFile

	for _, c := range []struct {
		name, url, password string
		permanent           bool
		words               []string
	}{
		{"frozen", frozen.URL(), "", false, []string{frozen.Addr(), "log in to", "no answer in time", "is the server alive"}},
		{"black hole", "redis://" + hole.Addr(), "", false, []string{hole.Addr(), "no answer in time"}},
		{"black hole under TLS", "rediss://" + hole.Addr(), "", false, []string{"TLS with " + hole.Addr()}},
		{"refused", "redis://" + refusing.Addr(), "", false, []string{"connect to " + refusing.Addr(), "is the server running"}},
		{"no such host", "redis://no-such-host.invalid", "", true, []string{"look up no-such-host.invalid:6379", "check the host's name"}},
		{"no such socket", "redis:///?socket=/nonexistent/redis.sock", "", true, []string{"/nonexistent/redis.sock", "check the path"}},
		{"TLS against plain", strings.Replace(plain.URL(), "redis:", "rediss:", 1), "", false, []string{"TLS with " + plain.Addr(), "is there TLS"}},
		{"plain against TLS", "redis://" + secured.Addr(), "", false, []string{"log in to " + secured.Addr(), "rediss://"}},
		{"unknown authority", "rediss://" + secured.Addr(), "", true, []string{"TLS with " + secured.Addr(), "check ca"}},
		{"another authority", "rediss://" + secured.Addr() + "?ca=" + foreign.CAFile, "", true, []string{"check ca"}},
		{"another name", "rediss://" + secured.Addr() + ca + "&server_name=elsewhere.example", "", true, []string{"elsewhere.example", "server_name"}},
		{"no password", "redis://" + locked.Addr(), "", true, []string{locked.Addr(), "NOAUTH", "password_file"}},
		{"wrong password", "redis://" + locked.Addr(), secret, true, []string{"log in to " + locked.Addr(), "WRONGPASS", "check user and password"}},
		{"a password too many", "redis://" + plain.Addr(), secret, true, []string{"log in to " + plain.Addr(), "leave it out"}},
		{"wrong database", plain.URL() + "/99", "", true, []string{"log in to " + plain.Addr(), "DB index is out of range", "smaller number"}},
		{"cluster that is none", "redis+cluster://" + plain.Addr(), "", true, []string{"ask " + plain.Addr(), "cluster support disabled", "use redis://"}},
		{"single that is a cluster", "redis://" + testserver.StartCluster(t, 3, false, testserver.RedisConfig{}).Nodes[0].Addr(), "", true,
			[]string{"MOVED", "use redis+cluster://"}},
		{"sentinel that is none", "redis+sentinel://" + plain.Addr() + "/lk", "", true, []string{"ask " + plain.Addr(), "it is no Sentinel"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := opened(t, c.url, backends.Options{Password: c.password})
			soon(t, 4*time.Second, "the acquire", func() {
				_, err := b.Acquire(within(t, time.Second), request("k"))
				unknown(t, err, c.permanent, c.words...)
			})
		})
	}
}

// TestUnrouted: to an address without a route, or behind a firewall, nothing answers at all.
func TestUnrouted(t *testing.T) {
	addr := deaf(t)
	b := opened(t, "redis://"+addr, backends.Options{})
	soon(t, 3*time.Second, "the acquire", func() {
		_, err := b.Acquire(within(t, 300*time.Millisecond), request("k"))
		unknown(t, err, false, "connect to "+addr, "no answer in time")
	})
}

// TestNoClientCertificate: under TLS 1.3 the server's refusal comes after the handshake, and may be overtaken by its reset.
func TestNoClientCertificate(t *testing.T) {
	certs := testserver.NewCerts(t)
	server := testserver.StartRedis(t, testserver.RedisConfig{TLS: certs, Mutual: true})
	_, err := opened(t, "rediss://"+server.Addr()+"?ca="+certs.CAFile, backends.Options{}).Acquire(within(t, time.Second), request("k"))
	unknown(t, err, backends.IsPermanent(err), server.Addr(), "check cert and key")
}

// deaf is an address that answers no connection: its queue is full, so that the kernel drops what asks for one.
func deaf(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 64 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("this kernel answers although the queue is full")
	return ""
}

// TestInterrupted is CON-01's TERM: a context that is cancelled ends every phase at once.
func TestInterrupted(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	l := acquire(t, opened(t, server.URL(), backends.Options{}), request("held"))
	proxy := testserver.StartProxy(t, server.Addr())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	warm := opened(t, "redis://"+proxy.Addr(), backends.Options{})
	release(t, acquire(t, warm, request("k")))
	proxy.BlackHole()
	nowhere := deaf(t)
	for name, f := range map[string]func(context.Context) error{
		"connect": func(ctx context.Context) error {
			_, err := opened(t, "redis://"+nowhere, backends.Options{}).Acquire(ctx, request("k"))
			return err
		},
		"login": func(ctx context.Context) error {
			_, err := opened(t, "redis://"+silent.Addr().String(), backends.Options{}).Acquire(ctx, request("k"))
			return err
		},
		"TLS": func(ctx context.Context) error {
			_, err := opened(t, "rediss://"+silent.Addr().String(), backends.Options{}).Acquire(ctx, request("k"))
			return err
		},
		"script": func(ctx context.Context) error { _, err := warm.Acquire(ctx, request("k")); return err },
		"quorum": func(ctx context.Context) error {
			_, err := opened(t, "redis+quorum://"+silent.Addr().String()+","+nowhere+","+deaf(t), backends.Options{}).Acquire(ctx, request("k"))
			return err
		},
		"wait": func(ctx context.Context) error {
			return opened(t, server.URL(), backends.Options{}).(backends.Waiter).Wait(ctx, request("held"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			stop := time.AfterFunc(100*time.Millisecond, cancel)
			defer stop.Stop()
			soon(t, 2*time.Second, name, func() {
				if err := f(ctx); err == nil {
					t.Error("it succeeded")
				}
			})
		})
	}
	release(t, l)
}

// TestFrozenDuringHold is what LSE-02 asks of a backend: beats and the release end when their time is over, and the lease
// goes on where it was when the server does.
func TestFrozenDuringHold(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	server.Freeze()
	for range 2 {
		soon(t, time.Second, "a beat", func() { unknown(t, l.Renew(within(t, 100*time.Millisecond), time.Minute), false, "no answer in time") })
	}
	soon(t, time.Second, "the release", func() {
		unknown(t, l.Release(within(t, 100*time.Millisecond), backends.End{Outcome: backends.Failed}), false, "no answer in time")
	})
	server.Thaw()
	err := l.Release(context.Background(), backends.End{Outcome: backends.Failed})
	if err != nil {
		t.Errorf("Release: %v", err)
	}
	if s := stateOf(t, b, "k"); s.State != backends.Free {
		t.Errorf("the key is %+v", s)
	}
}

// TestInterruptedAcquireLeavesNothing: what is still on its way when the caller gives up does not arrive afterwards.
func TestInterruptedAcquireLeavesNothing(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	direct := opened(t, server.URL(), backends.Options{})
	proxy := testserver.StartProxy(t, server.Addr())
	for range 20 {
		b := opened(t, "redis://"+proxy.Addr(), backends.Options{})
		r := request("k")
		server.Freeze()
		_, err := b.Acquire(within(t, 20*time.Millisecond), r)
		unknown(t, err, false)
		server.Thaw()
		if err := direct.Abandon(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		if s := stateOf(t, direct, "k"); s.State != backends.Free {
			t.Fatalf("the key is %s", s.State)
		}
	}
}

// TestFullServer is FOV-05: a server that evicts nothing and is full says so; one that evicts loses leases, and the next
// token rises all the same.
func TestFullServer(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{Args: []string{"--maxmemory-policy", "noeviction"}})
	b := opened(t, server.URL(), backends.Options{})
	l := acquire(t, b, request("held"))
	server.Must("CONFIG", "SET", "maxmemory", "500kb") // less than an empty server takes
	_, err := b.Acquire(within(t, time.Second), request("k"))
	unknown(t, err, false, "OOM command not allowed", "maxmemory", server.Addr())
	unknown(t, l.Release(within(t, time.Second), backends.End{Outcome: backends.Succeeded}), false, "OOM")
	if s := stateOf(t, b, "held"); s.State != backends.Held || s.Token != l.Grant().Token {
		t.Errorf("a release that failed left %+v", s)
	}

	server.Must("CONFIG", "SET", "maxmemory", "4mb")
	server.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	l = acquire(t, b, request("k"))
	eventually(t, "the eviction", func() bool {
		flood(t, server)
		n, _ := server.Must("EXISTS", b.(*backend).c.names("k").lease).(int64)
		return n == 0
	})
	if err := l.Renew(context.Background(), time.Minute); err != backends.ErrLost {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != backends.ErrLost {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	if next := acquire(t, b, request("k")).Grant().Token; next <= l.Grant().Token {
		t.Errorf("token %d after %d", next, l.Grant().Token)
	}
}

// flood writes a good deal more than the server has room for.
func flood(t *testing.T, server *testserver.Redis) {
	t.Helper()
	for i := range 300 {
		server.Must("SET", fmt.Sprintf("flood:%d:%d", time.Now().UnixNano(), i), strings.Repeat("x", 16<<10))
	}
}

// TestFailedSave is FOV-05: a server that could not save refuses writes.
func TestFailedSave(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	dir := server.Must("CONFIG", "GET", "dir").([]any)[1].(string)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	server.Must("CONFIG", "SET", "save", "3600 1")
	server.Do("BGSAVE")
	eventually(t, "the failed save", func() bool {
		info, err := server.Info("persistence")
		return err == nil && info["rdb_last_bgsave_status"] == "err"
	})
	unknown(t, l.Release(within(t, time.Second), backends.End{Outcome: backends.Succeeded}), false, "MISCONF", "disk")
	if !failing(b.(backends.Doctor).Doctor(context.Background()), "persistence") {
		t.Error("doctor finds nothing wrong with persistence")
	}
	server.Must("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	release(t, l)
}

func failing(checks []backends.Check, name string) bool {
	for _, c := range checks {
		if c.Check == name && !c.OK && c.Cause != "" && c.Remedy != "" {
			return true
		}
	}
	return false
}

// TestForeignType is KEY-04: whatever another program keeps under our names is an error, and stays as it is.
func TestForeignType(t *testing.T) {
	for _, top := range []string{"single", "cluster"} {
		t.Run(top, func(t *testing.T) {
			var url string
			var do func(...string) any
			if top == "single" {
				server := testserver.StartRedis(t, testserver.RedisConfig{})
				url, do = server.URL(), server.Must
			} else {
				cluster := testserver.StartCluster(t, 3, false, testserver.RedisConfig{})
				url, do = cluster.URL(), func(args ...string) any { return cluster.MasterOf(args[1]).Must(args...) }
			}
			b := opened(t, url, backends.Options{})
			c := b.(*backend).c
			for _, key := range []string{"{k", "k}", "{}", "{a}{b}"} {
				n := c.names(key)
				for name, make := range map[string][]string{
					n.lease: {"HSET", n.lease, "owner:1", "1"}, n.index: {"SET", n.index, "x"}, n.done: {"SET", n.done, "x"}, n.tries: {"SET", n.tries, "x"},
				} {
					do(make...)
					before := do("DUMP", name)
					r := request(key)
					r.RunID, r.Last = "r", true
					_, err := b.Acquire(within(t, 5*time.Second), r)
					unknown(t, err, true, "prefix")
					if name == n.lease {
						_, err = b.Status(within(t, 5*time.Second), key)
						unknown(t, err, true, "prefix")
					}
					if after := do("DUMP", name); after != before {
						t.Errorf("%s was changed", name)
					}
					if got := do("EXISTS", n.lease); name != n.lease && got != int64(0) {
						t.Errorf("with %s foreign the lease was written", name)
					}
					do("DEL", name)
					do("DEL", n.index)
				}
				for _, kind := range [][]string{{"SET", n.lease, "x"}, {"LPUSH", n.lease, "x"}} {
					do(kind...)
					_, err := b.Acquire(within(t, 5*time.Second), request(key))
					unknown(t, err, true, "WRONGTYPE", "prefix")
					_, err = b.Status(within(t, 5*time.Second), key)
					unknown(t, err, true, "WRONGTYPE", "prefix")
					do("DEL", n.lease)
				}
				release(t, acquire(t, b, request(key)))
			}
		})
	}
}
