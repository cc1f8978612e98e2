package zookeeper

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// The first acquire of a run is two exchanges, with and without credentials: the session with all that is asked along with
// it, and the grant.
func TestTheFirstAcquireIsTwoExchanges(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	for name, url := range map[string]string{
		"open":             z.URL(chroot()),
		"with credentials": strings.Replace(z.URL(chroot()), "://", "://me:secret@", 1),
	} {
		s := newStore(t, url)
		release(t, acquire(t, opened(t, s.url, backends.Options{}), request("k")))
		b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
		before := p.Requests()
		l := acquire(t, b, request("k"))
		first := p.Requests() - before
		release(t, l)
		if all := p.Requests() - before; first != 2 || all != 3 {
			t.Errorf("%s: %d exchanges for an acquire, and %d with the release", name, first, all)
		}
	}
}

// The look ahead shows what a look in the usual way shows, whatever kind of server it is, and whether the key is known.
func TestALookAhead(t *testing.T) {
	secure := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{TLS: testserver.NewCerts(t)})
	for name, url := range map[string]string{"plain": oneServer(t).URL(chroot()), "TLS": secure.URL(chroot())} {
		s := newStore(t, url)
		r := request("k")
		r.RunID = "the run"
		l := acquire(t, opened(t, s.url, backends.Options{}), r)
		for _, q := range []query{{}, {runID: "the run"}, {runID: "another"}} {
			for _, key := range []string{"k", "unknown"} {
				b := opened(t, s.url, backends.Options{}).(*backend)
				first := b.glanceAt(key, q)
				own, err := b.sessionOf(time.Minute, false, first)
				if err != nil {
					t.Fatal(err)
				}
				got := b.seen(within(t, enough), own, first)
				want, err := b.load(within(t, enough), own, key, query{runID: q.runID, timeless: true})
				if err != nil || got == nil {
					t.Fatalf("%s: %s with %q: %v, %v", name, key, q.runID, got, err)
				}
				if g, w := string(encodeJSON(got.s)), string(encodeJSON(want.s)); g != w || got.found != want.found || got.version != want.version ||
					got.zxid != want.zxid || len(got.alive) != len(want.alive) || (got.id == nil) != (want.id == nil) || got.idVersion != want.idVersion {
					t.Errorf("%s: %s with %q: seen %+v, and then %+v", name, key, q.runID, got, want)
				}
			}
		}
		release(t, l)
	}
}

// deaf is a connection on which nothing comes after the session.
type deaf struct {
	net.Conn
	hear int  // bytes that still come
	shut bool // it is closed then
}

// greeting is how long the answer to the request for a session is.
const greeting = 4 + 37

func (c *deaf) Read(b []byte) (int, error) {
	if c.hear > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.hear)])
		c.hear -= n
		return n, err
	}
	for !c.shut {
		if _, err := c.Conn.Read(b); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// Where the answers to what was asked ahead are lost, it is asked again on another connection, within the same acquire.
func TestALookAheadIsLost(t *testing.T) {
	z := oneServer(t)
	for _, url := range []string{z.URL(chroot()), strings.Replace(z.URL(chroot()), "://", "://me:secret@", 1)} {
		s := newStore(t, url)
		release(t, acquire(t, opened(t, s.url, backends.Options{}), request("k")))
		for _, shut := range []bool{false, true} {
			b := opened(t, s.url, backends.Options{Timeout: 2 * time.Second}).(*backend)
			var dialled atomic.Int32
			b.c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
				c, err := net.Dial(network, address)
				if dialled.Add(1) == 1 {
					c = &deaf{Conn: c, hear: greeting, shut: shut}
				}
				return c, err
			}
			release(t, acquire(t, b, request("k")))
			if dialled.Load() == 1 {
				t.Error("the answers were not lost, so this test shows nothing")
			}
		}
	}
}

// answerTo is a server's answer.
func answerTo(number, code int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(number))
	b = binary.BigEndian.AppendUint64(b, 4711)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), body...)
}

func TestAnswersAreFoundInPieces(t *testing.T) {
	stat, err := binary.Append(nil, binary.BigEndian, zk.Stat{Mzxid: 5, Version: 3})
	if err != nil {
		t.Fatal(err)
	}
	names := appendText(appendText(binary.BigEndian.AppendUint32(nil, 2), "one"), "two")
	stream := answerTo(0, 0, make([]byte, 21)) // to the request for a session
	for _, b := range [][]byte{
		answerTo(loginNumber, 0, nil), answerTo(firstNumber+7, 0, nil), answerTo(firstNumber+1, 0, append(names, stat...)),
		answerTo(firstNumber, 0, append(appendText(nil, "data"), stat...)), answerTo(firstNumber+2, noNode, nil), answerTo(firstNumber+3, -102, nil),
		answerTo(firstNumber+4, 0, appendText(nil, "data")), answerTo(firstNumber+5, 0, []byte{0, 1, 0, 0}), answerTo(firstNumber+6, 0, append([]byte{255, 255, 255, 255}, stat...)),
	} {
		stream = append(stream, b...)
	}
	for size := 1; size <= len(stream); size++ {
		var a ahead
		a.open = []*question{login("me", "secret"), about(firstNumber, askData, "/a"), about(firstNumber+1, askChildren, "/a")}
		for i := int32(2); i < 7; i++ {
			a.open = append(a.open, about(firstNumber+i, askData, "/a"))
		}
		late := about(firstNumber+9, askData, "/a")
		a.open = append(a.open, late)
		all := slices.Clone(a.open)
		for rest := stream; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			a.look(rest[:min(size, len(rest))])
		}
		a.over()
		var got []node
		var errs []error
		for _, q := range all {
			n, err := q.wait(context.Background(), nil)
			got, errs = append(got, n), append(errs, err)
		}
		if errs[0] != nil || string(got[1].data) != "data" || got[1].stat.Version != 3 || !got[1].found || got[2].stat.Mzxid != 5 ||
			strings.Join(got[2].children, " ") != "one two" || got[3].found || errs[3] != nil || got[6].found || len(got[7].data) != 0 || !got[7].found {
			t.Errorf("in pieces of %d: %+v, %v", size, got, errs)
		}
		if errs[4] != errRefused || errs[5] == nil || errs[6] != errShort || errs[8] != zk.ErrConnectionClosed {
			t.Errorf("in pieces of %d: the errors are %v", size, errs)
		}
	}
}
