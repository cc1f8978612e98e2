package testscripts

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/internal/testserver"
)

// keeper is a ZooKeeper server or an ensemble with a chroot that is closed to others, as these tests see it.
type keeper struct {
	*fleet
	conn *zk.Conn // logged in as lockrun is
	root string
}

// newKeeper takes the URLs of servers, with a chroot, and the addresses that stay reachable for the test itself.
func newKeeper(t *testing.T, plain string, addrs ...string) *keeper {
	t.Helper()
	with := func(secret string) string { return strings.Replace(plain, "://", "://lockrun:"+secret+"@", 1) }
	k := &keeper{root: plain[strings.LastIndexByte(plain, '/'):]}
	k.fleet = &fleet{host: newHost(t, with(password), password), wrong: with(wrongPassword), forget: k.forget}
	conn, _, err := zk.Connect(addrs, time.Minute, zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { go conn.Close() }) // it waits where nobody is there any more
	if err := conn.AddAuth("digest", []byte("lockrun:"+password)); err != nil {
		t.Fatal(err)
	}
	k.conn = conn
	return k
}

type mute struct{}

func (mute) Printf(string, ...any) {}

// lease is the node of a key's lease, "" where there is none.
func (k *keeper) lease(key string) string {
	k.t.Helper()
	path := k.root + "/keys/" + key
	// A server that lags may show a lease that has gone; see barrier in backends/zookeeper.
	if _, err := k.conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1}); err != nil {
		return ""
	}
	names, _, err := k.conn.Children(path)
	if err != nil {
		return ""
	}
	for _, n := range names {
		if strings.HasPrefix(n, "lease-") {
			return path + "/" + n
		}
	}
	return ""
}

func (k *keeper) forget(key string) {
	k.t.Helper()
	if err := k.conn.Delete(k.lease(key), -1); err != nil {
		k.t.Fatal(err)
	}
}

// beats waits until the lease of a run has been renewed from now on, which lockrun status does not tell here.
func (k *keeper) beats(c *holding) {
	k.t.Helper()
	from := int32(-1)
	k.await("the lease of "+c.key+" is renewed", func() bool {
		if c.over() {
			k.t.Fatalf("%s ended with %d: %s", c.name, c.code(), c.stderr())
		}
		_, stat, err := k.conn.Exists(k.lease(c.key))
		if err != nil || stat.Version == 0 && from < 0 {
			return false
		}
		if from < 0 {
			from = stat.Version
		}
		return stat.Version > from
	})
}

// survives wants that a run keeps its lease through a fault, and ends well without a word.
func (k *keeper) survives(c *holding, fault func()) {
	k.t.Helper()
	fault()
	k.beats(c)
	c.release().wants(0).silent()
}

// sub runs a subtest with this keeper's servers.
func (k *keeper) sub(name string, test func(k *keeper)) {
	k.host.sub(name, func(h *host) {
		inner, f := *k, *k.fleet
		f.host, inner.fleet = h, &f
		test(&inner)
	})
}

// peace are the checks of every server that fit a store of sessions, and some of its own.
func (k *keeper) peace() {
	k.sub("silence", func(k *keeper) { k.checkSilence() })
	k.sub("secrets", func(k *keeper) { k.checkSecrets(k.wrong) })
	k.sub("crowd", func(k *keeper) { k.checkCrowd() })
	k.sub("waiter", func(k *keeper) { k.checkWaiter() })
	k.sub("run id", func(k *keeper) { k.checkRunID() })
	k.sub("unlocked", func(k *keeper) { k.checkUnlocked() })
	k.sub("removed", (*keeper).checkRemoved)
	k.sub("shell verbs", (*keeper).checkShell)
	k.sub("hold", (*keeper).checkHold)
	k.sub("a shortened ttl", (*keeper).checkShortened)
	k.sub("blip", func(k *keeper) {
		c := k.hold("blip", 0, "--ttl", "20s", "--heartbeat", "100ms")
		k.survives(c, func() {
			k.freeze()
			defer k.thaw()
			time.Sleep(300 * time.Millisecond) // LOG-01: a blip is not worth a word
		})
	})
}

// LSE-05: the lease's node is taken away by hand and a rival acquires. The first run is stopped, and does not touch the
// rival's.
func (k *keeper) checkRemoved() {
	c := k.hold("removed", 0, "--ttl", "60s", "--heartbeat", "300ms")
	k.forget("removed")
	rival := k.hold("removed.rival", 0) // another key, so that its files are its own
	rival.release().wants(0)
	r := k.start("--key", "removed", "--wait", "10s", "--", "sh", "-c", "sleep 2")
	k.await("the rival has the key", func() bool { return k.lease("removed") != "" })
	before := k.lease("removed")
	c.wants(79).says("lockrun: ", `"removed"`)
	if alive(c.pid) {
		k.t.Error("the job outlived lockrun")
	}
	if after := k.lease("removed"); after != before {
		k.t.Errorf("the rival's lease was %s and is %s", before, after)
	}
	r.wants(0).silent()
}

// checkShell keeps a lease for a script: another process renews and releases what the background process took.
func (k *keeper) checkShell() {
	k.lockrun(64, "acquire", "--key", "script").says("lockrun: ", "--while-pid", "session")
	script := k.start("--key", "other", "--", "sleep", "600")
	k.await("the script runs", func() bool { return k.lease("other") != "" })
	pid := fmt.Sprint(script.cmd.Process.Pid)
	token := strings.TrimSpace(k.lockrun(0, "acquire", "--key", "script", "--while-pid", pid).stdout())
	k.lockrun(75, "--key", "script", "--", "true").silent()
	k.lockrun(0, "renew", "--key", "script", "--token", token)
	k.lockrun(79, "renew", "--key", "script", "--token", token+"0")
	k.lockrun(0, "release", "--key", "script", "--token", token)
	k.lockrun(79, "release", "--key", "script", "--token", token)
	k.lockrun(0, "--key", "script", "--", "true").silent()
	k.lockrun(0, "acquire", "--key", "script", "--while-pid", pid)
	script.signal(15)
	<-script.done
	k.await("the lease ends with the script", func() bool { return k.lease("script") == "" })
}

// LSE-07: the minimum hold outlives the run, and lockrun itself does not wait for it.
func (k *keeper) checkHold() {
	k.lockrun(0, "--key", "hold", "--hold-at-least", "1h", "--", "true").silent()
	k.lockrun(75, "--key", "hold", "--", "echo", "started").silent()
	if reason := k.status("hold")["reason"]; reason != "minimum hold" {
		k.t.Errorf("the reason is %v", reason)
	}
}

// checkShortened wants that what the servers shorten is told to who looks, and to nobody else.
func (k *keeper) checkShortened() {
	k.lockrun(0, "--key", "short", "--ttl", "20m", "--", "true").silent()
	if said := k.lockrun(0, "--key", "short", "--ttl", "20m", "-v", "--", "true").stderr(); !strings.Contains(said, "keeps a lease for at most 9m59s") {
		k.t.Errorf("it said %s", said)
	}
	k.lockrun(64, "--key", "short", "--ttl", "20m", "--grace", "9m", "--", "true").says("lockrun: ", "--grace 9m", "grants 9m59s of the 20m", "give a --grace under ")
	c := k.hold("short", 0, "--ttl", "20m", "--grace", "2m") // and it was given back
	if said := k.lockrun(0, "status", "short").stdout(); !regexp.MustCompile(`(?m)^KEY +STATE +HOLDER +AGE.*\n^short +held +\S+ +[0-9.]+m?s `).MatchString(said) {
		k.t.Errorf("a held key has no age: %s", said)
	}
	if said := k.lockrun(1, "doctor", "--key", "short", "--ttl", "20m", "--grace", "9m").stdout(); !strings.Contains(said, "grants 9m59s of the 20m") {
		k.t.Errorf("the doctor said %s", said)
	}
	c.release().wants(0)
}

// CNC-04: all of thirty that wait for one key run, one by one, none twice. A folder can be made by one at a time.
func (k *keeper) checkOneByOne() {
	const many = 30
	var all []*run
	for i := range many {
		all = append(all, k.start("--key", "queue", "--wait", "10m", "--backend-timeout", "20s", "--", "sh", "-c",
			fmt.Sprintf("mkdir one || echo OVERLAP >>queue.ran; sleep 0.01; echo %d >>queue.ran; rmdir one", i)))
	}
	for _, r := range all {
		r.wants(0).silent()
	}
	ran := strings.Fields(k.read(k.file("queue.ran")))
	seen := map[string]bool{}
	for _, word := range ran {
		seen[word] = true
	}
	if len(ran) != many || len(seen) != many || seen["OVERLAP"] {
		k.t.Errorf("ran %v", ran)
	}
}

func TestServersZooKeeper(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{})
	k := newKeeper(t, z.URL("/locks"), z.Addr())
	k.freeze, k.thaw, k.kill = z.Freeze, z.Thaw, z.Kill
	k.sub("no chroot", func(k *keeper) {
		k.lockrun(69, "--key", "early", "--backend-timeout", "30s", "--", "true") // the first client of a new server waits longest
		k.refused("early", "lockrun init")
	})
	k.lockrun(0, "init")
	k.peace()
	k.sub("restart", func(k *keeper) {
		k.survives(k.hold("restart", 0, "--ttl", outlast, "--heartbeat", "100ms"), z.Restart)
	})
	k.war()
}

func TestServersEnsemble(t *testing.T) {
	t.Parallel()
	e := testserver.StartEnsemble(t, 3, testserver.ZooKeeperConfig{})
	var addrs []string
	for _, z := range e.Servers {
		addrs = append(addrs, z.Addr())
	}
	k := newKeeper(t, e.URL("/locks"), addrs...)
	k.lockrun(0, "init")
	k.sub("leader killed", func(k *keeper) {
		c := k.hold("bereft", 0, "--ttl", outlast, "--heartbeat", "100ms")
		k.survives(c, func() { old := e.Leader(); old.Kill(); e.Await(2); old.Restart(); e.Await(3) })
	})
	k.sub("one is frozen", func(k *keeper) {
		one := e.Followers()[0]
		c := k.hold("followed", 0, "--ttl", outlast, "--heartbeat", "100ms")
		one.Freeze()
		k.lockrun(0, "--key", "majority", "--", "true").silent()
		k.beats(c)
		one.Thaw()
		c.release().wants(0).silent()
		e.Await(3)
	})
	k.sub("one by one", (*keeper).checkOneByOne)
	// No two of three are left to decide anything. The one that is left answers reads and pings for a second.
	k.sub("no quorum", func(k *keeper) {
		leader, others := e.Leader(), e.Followers()
		k.checkDeadInTime("minority", func() { leader.Kill(); others[0].Kill() })
		k.refused("minority-start")
	})
}

func TestReadmeZooKeeper(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{})
	r := newReadmeServer(t, "zookeeper://zk1:2181,zk2:2181,zk3:2181/lockrun", z.URL("/lockrun"))
	r.ran(r.run("shell zookeeper"))
}
