package testserver

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// through opens a connection to a proxy.
func through(t *testing.T, p *Proxy) *respConn {
	t.Helper()
	c, err := dialRESP(p.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// silent fails the test unless nothing comes within a moment.
func silent(t *testing.T, c *respConn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if b, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q, %v came where nothing should", b, err)
	}
	c.SetReadDeadline(time.Time{})
}

// send asks without waiting for the reply.
func send(t *testing.T, c *respConn, command string) {
	t.Helper()
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
}

func TestProxyLosesOneReply(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	p := StartProxy(t, r.Addr())
	for _, after := range []After{KeepOpen, CloseIt} {
		r.Must("DEL", "n")
		c := through(t, p)
		lost := p.LoseReply("INCR", after)
		if v, err := c.do("GET", "n"); v != nil || err != nil {
			t.Fatalf("a request that does not match: %v, %v", v, err)
		}
		send(t, c, "INCR n")
		await(t, "losing the reply", func() error {
			if !lost() {
				return errors.New("not lost")
			}
			return nil
		})
		if got := r.Must("GET", "n"); got != "1" {
			t.Fatalf("the server has n = %v, so it did not get the request once", got)
		}
		if after == CloseIt {
			if _, err := c.reply(); err == nil {
				t.Error("the connection is not closed")
			}
			continue
		}
		silent(t, c)
		if v, err := c.do("INCR", "n"); v != int64(2) || err != nil {
			t.Errorf("the next request: %v, %v; want its own reply", v, err)
		}
	}
}

func TestProxyAltersOneReply(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	p := StartProxy(t, r.Addr())
	c := through(t, p)
	altered := p.AlterReply("INCR", func(reply []byte) bool { reply[1] = '7'; return true })
	if v, err := c.do("SET", "n", "0"); v != "OK" || err != nil || altered() {
		t.Fatalf("a request that does not match: %v, %v; altered: %v", v, err, altered())
	}
	for _, want := range []int64{7, 2} {
		if v, err := c.do("INCR", "n"); v != want || err != nil || !altered() {
			t.Errorf("%v, %v, want %d; altered: %v", v, err, want, altered())
		}
	}
}

func TestProxyLosesOneRequest(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	p := StartProxy(t, r.Addr())
	c := through(t, p)
	lost := p.LoseRequest("", KeepOpen)
	send(t, c, "INCR n")
	silent(t, c)
	if !lost() {
		t.Error("nothing was lost")
	}
	if v, err := c.do("INCR", "n"); v != int64(1) || err != nil {
		t.Errorf("the next request: %v, %v; want 1, as the first has not arrived", v, err)
	}
	p.LoseRequest("INCR", CloseIt)
	if v, err := c.do("INCR", "n"); err == nil {
		t.Errorf("a lost request is answered by %v", v)
	}
}

func TestProxyBlackHole(t *testing.T) {
	p := StartProxy(t, StartRedis(t, RedisConfig{}).Addr())
	old := through(t, p)
	if _, err := old.do("PING"); err != nil {
		t.Fatal(err)
	}
	p.BlackHole()
	for _, c := range []*respConn{old, through(t, p)} {
		send(t, c, "PING")
		silent(t, c)
	}
	p.Heal()
	if v, err := old.do("PING"); v != "PONG" || err != nil {
		t.Errorf("healed: %v, %v", v, err)
	}
}

func TestProxyResetsAndRefuses(t *testing.T) {
	p := StartProxy(t, StartRedis(t, RedisConfig{}).Addr())
	c := through(t, p)
	if _, err := c.do("PING"); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if _, err := c.reply(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
	c = through(t, p)
	if _, err := c.do("PING"); err != nil {
		t.Errorf("a new connection after a reset: %v", err)
	}
	p.Refuse()
	if _, err := dialRESP(p.Addr(), nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refusing: %v", err)
	}
	if _, err := c.do("PING"); err == nil {
		t.Error("a connection outlives Refuse")
	}
	p.Heal()
	if v, err := through(t, p).do("PING"); v != "PONG" || err != nil {
		t.Errorf("healed: %v, %v", v, err)
	}
}

func TestProxyDelaysAndDropsIdle(t *testing.T) {
	p := StartProxy(t, StartRedis(t, RedisConfig{}).Addr())
	c := through(t, p)
	p.Delay(30 * time.Millisecond)
	begin := time.Now()
	if _, err := c.do("PING"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Errorf("a round trip took %v with a delay of 30 ms each way", took)
	}
	p.Heal()
	p.DropIdle(200 * time.Millisecond)
	begin = time.Now()
	if _, err := c.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an idle connection: %v", err)
	}
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("a connection was dropped after %v, not after it had idled", took)
	}
	if n := p.Accepted(); n != 1 {
		t.Errorf("%d connections were accepted", n)
	}
}

func TestProxyRecordsRequests(t *testing.T) {
	p := StartProxy(t, StartRedis(t, RedisConfig{}).Addr())
	c := through(t, p)
	stop := p.Record()
	if _, err := c.do("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	tape := stop()
	if _, err := c.do("PING"); err != nil {
		t.Fatal(err)
	}
	if want := "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"; len(tape) != 1 || string(tape[0]) != want {
		t.Errorf("recorded %q, want %q", tape, want)
	}
	if n := p.Requests(); n != 2 {
		t.Errorf("%d requests are counted, want 2", n)
	}
}
