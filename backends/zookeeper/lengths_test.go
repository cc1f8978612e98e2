package zookeeper

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func TestLengthsOfAnswers(t *testing.T) {
	good := "\x00\x00\x00\x10" + strings.Repeat("a", 16) + "\x00\x00\x00\x11" + strings.Repeat("b", 17)
	for size := 1; size <= len(good); size++ {
		var f lengths
		for rest := good; rest != ""; rest = rest[min(size, len(rest)):] {
			if err := f.look([]byte(rest[:min(size, len(rest))])); err != nil {
				t.Errorf("in pieces of %d: %v", size, err)
			}
		}
		if f.body != 0 || len(f.head) != 0 {
			t.Errorf("in pieces of %d: %+v is left", size, f)
		}
		f = lengths{}
		if f.look([]byte(good)) != nil || f.look([]byte("\xff\xff\xff")) != nil || f.look([]byte("\xff")) == nil {
			t.Error("a length of 4 GB is let through")
		}
		f = lengths{}
		if f.look([]byte("\x00\x00\x00\x0f")) == nil {
			t.Error("a length below that of the shortest answer is let through")
		}
	}
}

// A session of no length would have the client divide by it.
func TestASessionOfNoLength(t *testing.T) {
	b := opened(t, oneServer(t).URL("/x"), backends.Options{}).(*backend)
	b.c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return &shortening{Conn: c, ms: 0}, err
	}
	_, err := b.Acquire(within(t, enough), request("k"))
	unknown(t, err, false, "session of no length")
}

// What says that four gigabytes follow is not waited for, nor is memory asked for.
func TestAServerThatBoasts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(strings.Repeat("\xff", 64)))
			defer c.Close()
		}
	}()
	u, err := backends.ParseURL("zookeeper://" + l.Addr().String() + "/lockrun")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), u, backends.Options{Timeout: time.Second}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Status(t.Context(), "k")
	if err == nil || !strings.Contains(err.Error(), `not a ZooKeeper server's`) {
		t.Errorf("it answered %v", err)
	}
}
