package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
)

// store is a chroot of its own on some servers, and a way into it past the backend's operations.
type store struct {
	t    testing.TB
	url  string
	c    *config
	conn *zk.Conn
	gate sync.RWMutex // locked while no backend of the store may connect
}

var chroots atomic.Int64

// chroot is a name that no other store of this test process has. There is no node above that several would share: whoever made
// it with credentials would close it to the others.
func chroot() string { return fmt.Sprintf("/t%d", chroots.Add(1)) }

// newStore sets a chroot up at url, which names one.
func newStore(t testing.TB, url string) *store {
	t.Helper()
	b := opened(t, url, backends.Options{}).(*backend)
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := b.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &store{t: t, url: url, c: b.c, conn: s.conn}
}

func (s *store) suite() *backendtest.Store {
	return &backendtest.Store{Open: s.open, Expire: s.expire, Remove: s.remove, Dump: s.dump, Foreign: s.foreign}
}

func (s *store) open(o backends.Options) backends.Backend {
	s.t.Helper()
	b := open(s.t, s.url, o).(*backend)
	b.c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		s.gate.RLock()
		defer s.gate.RUnlock()
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return b
}

func open(t testing.TB, url string, o backends.Options) backends.Backend {
	t.Helper()
	u, err := backends.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(context.Background(), u, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is open with a cleanup.
func opened(t testing.TB, url string, o backends.Options) backends.Backend {
	t.Helper()
	b := open(t, url, o)
	t.Cleanup(func() { b.Close() })
	return b
}

// leases are the paths of key's lease nodes.
func (s *store) leases(key string) []string {
	s.t.Helper()
	if _, err := s.conn.Multi(&zk.CheckVersionRequest{Path: s.c.root, Version: -1}); err != nil {
		s.t.Fatal(err)
	}
	names, _, err := s.conn.Children(s.c.keyPath(key))
	if err != nil && err != zk.ErrNoNode {
		s.t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, leasePrefix) })
	slices.Sort(names)
	for i, n := range names {
		names[i] = s.c.keyPath(key) + "/" + n
	}
	return names
}

// expire ends the sessions that key's leases live in, as the servers would.
func (s *store) expire(key string) {
	s.t.Helper()
	// A client that took its session back meanwhile would be left with a connection on which the server drops whatever is
	// asked, without a word, since it still ends the session. An expiry closes the client's connection.
	s.gate.Lock()
	defer s.gate.Unlock()
	for _, path := range s.leases(key) {
		if _, stat, err := s.conn.Exists(path); err != nil {
			s.t.Fatal(err)
		} else if stat.EphemeralOwner != 0 {
			endSession(s.t, s.c.hosts[0], stat.EphemeralOwner)
		}
	}
	for end := time.Now().Add(20 * time.Second); len(s.leases(key)) > 0; {
		if time.Now().After(end) {
			s.t.Fatalf("the sessions were ended, and %v are there", s.leases(key))
		}
	}
}

// endSession takes over the session of somebody else and ends it. Its password is made from its id in a way that every
// server knows (ZooKeeperServer.generatePasswd, by Java's Random).
func endSession(t testing.TB, host string, id int64) {
	t.Helper()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	b := binary.BigEndian.AppendUint32(nil, 44) // length
	b = binary.BigEndian.AppendUint32(b, 0)     // protocol
	b = binary.BigEndian.AppendUint64(b, 0)     // last transaction seen
	b = binary.BigEndian.AppendUint32(b, 10000)
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, 16)
	b = append(b, javaRandom(id^0xB3415C00)...)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, 1)
	opClose := int32(opCloseSession)
	b = binary.BigEndian.AppendUint32(b, uint32(opClose))
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, c) // both answers, and the end
}

// javaRandom is new Random(seed).nextBytes of 16.
func javaRandom(seed int64) []byte {
	const mask = 1<<48 - 1
	state := (uint64(seed) ^ 0x5DEECE66D) & mask
	var b []byte
	for range 4 {
		state = (state*0x5DEECE66D + 0xB) & mask
		b = binary.LittleEndian.AppendUint32(b, uint32(state>>16))
	}
	return b
}

func (s *store) remove(key string) {
	for _, path := range s.leases(key) {
		if err := s.conn.Delete(path, -1); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *store) dump(key string) string {
	var text strings.Builder
	leases := s.leases(key)
	for _, path := range append([]string{s.c.keyPath(key)}, leases...) {
		data, stat, err := s.conn.Get(path)
		if err != nil && err != zk.ErrNoNode {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s=%s (%#x)\n", path, data, stat.EphemeralOwner)
	}
	return text.String()
}

// foreign puts another program's node where key would be.
func (s *store) foreign(key string) func() string {
	s.t.Helper()
	if _, err := s.conn.Create(s.c.keyPath(key), []byte("not ours"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		s.t.Fatal(err)
	}
	return func() string {
		names, stat, err := s.conn.Children(s.c.keyPath(key))
		if err != nil {
			s.t.Fatal(err)
		}
		return fmt.Sprint(s.dump(key), names, stat.Version, stat.Mzxid)
	}
}
