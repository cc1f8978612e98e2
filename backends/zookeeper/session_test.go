package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// A server that is cut off from its quorum answers pings and reads for syncLimit ticks. A beat there is not a beat, a
// refusal there is no refusal, and no one is granted anything.
func TestAServerCutOffFromItsQuorum(t *testing.T) {
	// Long enough that the server cannot be done with its quorum before the beats below.
	e := testserver.StartEnsemble(t, 3, testserver.ZooKeeperConfig{Lines: []string{"syncLimit=100"}})
	s := newStore(t, e.URL(chroot()))
	one := e.Followers()[0]
	b := opened(t, one.URL(s.c.root), backends.Options{Timeout: 500 * time.Millisecond})
	l := acquire(t, b, request("k"))
	for _, z := range e.Servers {
		if z != one {
			z.Freeze()
			defer z.Thaw()
		}
	}
	// Reads are answered still, from what it knew.
	if n, err := b.(*backend).sessions[0].children(within(t, enough), s.c.keysPath()); err != nil || len(n.children) != 1 {
		t.Errorf("the server that was cut off does not read, so this test shows nothing: %v, %v", n, err)
	}
	unknown(t, l.Renew(within(t, time.Second), time.Minute), false)
	other := opened(t, one.URL(s.c.root), backends.Options{Timeout: 500 * time.Millisecond})
	for _, key := range []string{"k", "free"} {
		_, err := other.Acquire(within(t, time.Second), request(key))
		unknown(t, err, false)
	}
}

// The leader is killed while a lease is held: the session moves, and no beat is lost for good.
func TestTheLeaderIsKilled(t *testing.T) {
	e := testserver.StartEnsemble(t, 3, testserver.ZooKeeperConfig{})
	s := newStore(t, e.URL(chroot()))
	b := opened(t, s.url, backends.Options{})
	for range 2 {
		l := acquire(t, b, request("k"))
		old := e.Leader()
		old.Kill()
		renew(t, l)
		release(t, l)
		old.Restart()
		e.Await(3)
	}
	if h := historyOf(t, b, "k"); len(h) != 2 {
		t.Errorf("history %+v", h)
	}
}

// Tokens rise even where an administrator has deleted everything, the counter included.
func TestTokensOutliveTheChroot(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	b := opened(t, s.url, backends.Options{})
	var last int64
	for range 3 {
		for range 3 {
			l := acquire(t, b, request("k"))
			if g := l.Grant(); g.Token <= last {
				t.Fatalf("token %d after %d", g.Token, last)
			} else {
				last = g.Token
			}
			release(t, l)
		}
		deleteAll(t, s.conn, s.c.root)
		if err := b.(backends.Initer).Init(within(t, enough)); err != nil {
			t.Fatal(err)
		}
	}
}

func deleteAll(t *testing.T, c *zk.Conn, path string) {
	t.Helper()
	names, _, err := c.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		deleteAll(t, c, path+"/"+n)
	}
	if err := c.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
}

// What the servers shorten is what is granted, with room for a follower that is late; a session that they lengthen is no
// reason to rely on more than was asked for.
func TestGrantsFollowTheSession(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{Lines: []string{"minSessionTimeout=4000", "maxSessionTimeout=8000"}})
	s := newStore(t, z.URL(chroot()))
	if most, err := opened(t, s.url, backends.Options{}).(backends.Limiter).LongestTTL(within(t, enough)); err != nil || most != 7*time.Second {
		t.Errorf("the longest lease is said to be %v, %v", most, err)
	}
	for asked, want := range map[time.Duration]time.Duration{
		time.Hour: 7 * time.Second, 9 * time.Second: 7 * time.Second, 7 * time.Second: 7 * time.Second,
		5 * time.Second: 5 * time.Second, 3 * time.Second: 3 * time.Second, 300 * time.Millisecond: 300 * time.Millisecond,
	} {
		b := opened(t, s.url, backends.Options{})
		r := request(fmt.Sprint("k", asked))
		r.TTL = asked
		if g := acquire(t, b, r).Grant(); g.TTL != want || g.Drift <= 0 || g.Drift > g.TTL/10 {
			t.Errorf("asked for %v, granted %v with a drift of %v; want %v", asked, g.TTL, g.Drift, want)
		}
	}
}

// A backend that is closed while it has a lease leaves it to its time-out; one without ends its session at once.
func TestCloseGivesNothingBack(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	b := opened(t, s.url, backends.Options{})
	r := request("k")
	r.TTL = time.Second
	acquire(t, b, r)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.leases("k"); len(n) != 1 {
		t.Errorf("closed, and the leases are %v", n)
	}
	eventually(t, "the session ends", func() bool { return len(s.leases("k")) == 0 })

	b = opened(t, s.url, backends.Options{})
	release(t, acquire(t, b, request("k")))
	id := fmt.Sprintf("%#x", b.(*backend).sessions[0].conn.SessionID())
	there := func() bool {
		text, err := z.Word("dump")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, id)
	}
	if !there() {
		t.Fatalf("the server does not tell of session %s", id)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is gone", func() bool { return !there() })
}

// The client connects again by itself. A connection that comes up while the backend is closed must not carry the request that
// ends the session, and gives the lease back.
func TestCloseDuringAReconnectGivesNothingBack(t *testing.T) {
	s := newStore(t, oneServer(t).URL(chroot()))
	b := opened(t, s.url, backends.Options{}).(*backend)
	dialling, goOn := make(chan struct{}), make(chan struct{})
	first := true
	b.c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		if !first {
			close(dialling)
			<-goOn
		}
		first = false
		return net.Dial(network, address)
	}
	acquire(t, b, request("k"))
	own := b.sessions[0]
	own.link.Close()
	<-dialling
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	eventually(t, "the client has ended", func() bool { return own.conn.State() == zk.StateDisconnected })
	if n := s.leases("k"); len(n) != 1 {
		t.Errorf("closed, and the leases are %v", n)
	}
}

// shortening is a way to a server that gives shorter sessions than others.
type shortening struct {
	net.Conn
	ms   uint32
	read int
}

func (c *shortening) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	given := binary.BigEndian.AppendUint32(nil, c.ms)
	for i := range n {
		if at := c.read + i - timeoutAt; at >= 0 && at < len(given) {
			b[i] = given[at]
		}
	}
	c.read += n
	return n, err
}

// A server that keeps sessions for less than the one that granted the lease makes it end for others before it ends for its
// holder. Beats there are none, and the next server is asked for the length that the first one gave.
func TestAServerThatShortensTheSession(t *testing.T) {
	s := newStore(t, oneServer(t).URL(chroot()))
	b := opened(t, s.url, backends.Options{}).(*backend)
	var ms atomic.Uint32
	b.c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		if give := ms.Load(); give != 0 && err == nil {
			c = &shortening{Conn: c, ms: give}
		}
		return c, err
	}
	l := acquire(t, b, request("k"))
	renew(t, l)
	own := b.sessions[0]
	granted := own.limit()
	ms.Store(5000)
	own.leave()
	eventually(t, "it is at the other server", func() bool { return own.limit() == 5*time.Second })
	unknown(t, l.Renew(within(t, enough), time.Minute), false, "shortened", "keeps it for 5s", "maxSessionTimeout")
	ms.Store(0)
	eventually(t, "it is at the first one again", func() bool { own.leave(); return own.limit() == granted })
	renew(t, l)
	release(t, l)
}

// holding is a way to the servers on which the request that grants a lease stays until it is let go.
type holding struct {
	net.Conn
	held chan<- struct{} // told of it
	goOn <-chan struct{}
}

func (c *holding) Write(b []byte) (int, error) {
	if strings.Contains(string(b), leasePrefix) {
		select {
		case c.held <- struct{}{}:
		default:
		}
		<-c.goOn
	}
	return c.Conn.Write(b)
}

// Acquire was given up while its request was still on its way, and there is a second session, in which the time was asked for.
// What gives the lease back has to come after that request.
func TestAbandonComesAfterWhatItUndoes(t *testing.T) {
	s := newStore(t, oneServer(t).URL(chroot()))
	b := opened(t, s.url, backends.Options{}).(*backend)
	held, goOn := make(chan struct{}, 1), make(chan struct{})
	b.c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return &holding{c, held, goOn}, err
	}
	if _, err := b.Now(within(t, enough)); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	go func() { <-held; giveUp() }()
	r := request("k")
	if _, err := b.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v", err)
	}
	undone := make(chan error, 1)
	go func() { undone <- b.Abandon(within(t, enough), r) }()
	select {
	case <-undone:
		close(goOn)
		t.Fatal("it was undone before it was done")
	case <-time.After(50 * time.Millisecond): // right code stays here for as long as it takes
	}
	close(goOn)
	if err := <-undone; err != nil {
		t.Fatal(err)
	}
	if n := s.leases("k"); len(n) != 0 {
		t.Errorf("given back, and the leases are %v", n)
	}
}

// A lease that another session has taken over, by the same owner's retry, is not renewed by the first one's beats.
func TestABeatInAnotherSessionIsNone(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	r := request("k")
	first := acquire(t, opened(t, s.url, backends.Options{}), r)
	second := acquire(t, opened(t, s.url, backends.Options{}), r)
	renew(t, second)
	err := first.Renew(within(t, enough), time.Minute)
	if err == nil || errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew = %v", err)
	}
	release(t, second)
}

// Who may only read can ask, and is told the time that is left by this host's clock.
func TestReaders(t *testing.T) {
	s := newStore(t, strings.Replace(oneServer(t).URL(chroot()), "://", "://me:secret@", 1))
	b := opened(t, s.url, backends.Options{})
	held := acquire(t, b, request("held"))
	r := request("hold")
	r.HoldAtLeast = time.Hour
	release(t, acquire(t, b, r))
	letRead(t, s.conn, s.c.root)
	reader := opened(t, strings.Replace(s.url, "me:secret@", "", 1), backends.Options{ReadOnly: true})
	if st := stateOf(t, reader, "held"); st.State != backends.Held || st.Token != held.Grant().Token {
		t.Errorf("a held key: %+v", st)
	}
	if st := stateOf(t, reader, "hold"); st.State != backends.Held || st.ExpiresIn == nil || *st.ExpiresIn < 50*time.Minute || *st.ExpiresIn > time.Hour+time.Minute {
		t.Errorf("a minimum hold: %+v", st)
	}
	if h := historyOf(t, reader, "hold"); len(h) != 1 {
		t.Errorf("history %+v", h)
	}
	_, err := reader.Acquire(within(t, enough), request("other"))
	unknown(t, err, true, "not authenticated")
}

// letRead opens nodes to readers, as an administrator would with setAcl -R.
func letRead(t *testing.T, c *zk.Conn, path string) {
	t.Helper()
	acl, _, err := c.GetACL(path)
	if err == nil {
		_, err = c.SetACL(path, append(acl, zk.WorldACL(zk.PermRead)...), -1)
	}
	names, _, err2 := c.Children(path)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, leasePrefix) { // whose rights end with it
			letRead(t, c, path+"/"+n)
		}
	}
}

// What somebody has taken away under a key is made again, and run ids whose time is over go.
func TestRepairsAndOldRunIDs(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	b := opened(t, s.url, backends.Options{Keep: backends.Keep{Runs: 2, DoneAge: time.Millisecond}})
	for i := range 5 {
		r := request("k")
		r.RunID = fmt.Sprint("r", i)
		l := acquire(t, b, r)
		path := s.c.keyPath("k")
		deleteAll(t, s.conn, path+"/"+idsName)
		if i > 2 {
			deleteAll(t, s.conn, path+"/"+runsName)
		}
		release(t, l)
	}
	if h := historyOf(t, b, "k"); len(h) != 1 {
		t.Errorf("history %+v", h)
	}
}

// Run ids whose time is over are found by chance, and so go bit by bit.
func TestOldRunIDsGo(t *testing.T) {
	s := newStore(t, oneServer(t).URL(chroot()))
	b := opened(t, s.url, backends.Options{Keep: backends.Keep{DoneAge: time.Millisecond}})
	r := request("k")
	r.RunID = "new"
	if err := acquire(t, b, r).Release(within(t, enough), backends.End{Outcome: backends.Failed}); err != nil {
		t.Fatal(err)
	}
	part := parent(idPath(s.c.keyPath("k"), "new"))
	for i := range 300 {
		if _, err := s.conn.Create(fmt.Sprint(part, "/old", i), nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		r.Owner = backends.NewOwner()
		l := acquire(t, b, r)
		if err := l.Release(within(t, enough), backends.End{Outcome: backends.Failed}); err != nil { // with success it might still be done
			t.Fatal(err)
		}
	}
	if names, _, err := s.conn.Children(part); err != nil || len(names) > 150 {
		t.Errorf("%d run ids are left of 300 whose time is over, %v", len(names), err)
	}
}

// The doctor tells what is wrong without credentials, and what an administrator may want to know.
func TestDoctor(t *testing.T) {
	e := testserver.StartEnsemble(t, 3, testserver.ZooKeeperConfig{Lines: []string{"maxSessionTimeout=20000"}})
	checks := func(url string) map[string]backends.Check {
		b := opened(t, url, backends.Options{ReadOnly: true})
		all := map[string]backends.Check{}
		for _, c := range b.(backends.Doctor).Doctor(within(t, enough)) {
			all[c.Check] = c
		}
		return all
	}
	url := e.URL("/doctor")
	if c := checks(url)["chroot"]; c.OK || c.Remedy != "run lockrun init against this backend" {
		t.Errorf("without a chroot: %+v", c)
	}
	if err := opened(t, url, backends.Options{}).(backends.Initer).Init(within(t, enough)); err != nil {
		t.Fatal(err)
	}
	all := checks(url)
	for _, name := range []string{"servers", "chroot", "rights", "session length", "quorum", "containers"} {
		if c, ok := all[name]; !ok || !c.OK {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if c := all["session length"]; c.Remedy == "" {
		t.Errorf("a minute cannot be had, and there is no advice: %+v", c)
	}
	if c := all["rights"]; c.Remedy == "" {
		t.Errorf("everybody may write, and there is no advice: %+v", c)
	}
	e.Followers()[0].Kill()
	if c := checks(url)["servers"]; !c.OK || c.Remedy == "" {
		t.Errorf("one of three is down: %+v", c)
	}
	e.Followers()[0].Kill()
	if c := checks(url)["session"]; c.OK || c.Remedy == "" {
		t.Errorf("two of three are down: %+v", c)
	}
}
