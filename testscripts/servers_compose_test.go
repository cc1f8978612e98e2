package testscripts

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// A lock on the host, and one that hosts share. The first is never down here.
func TestServersSeveral(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t, testserver.RedisConfig{Password: password})
	file := filepath.Join(t.TempDir(), "local.db")
	local := "sqlite://" + file
	f := redisFleet(t, local+"\n"+r.URL(), r)
	shared := f.forget
	f.forget = func(key string) {
		testserver.Need(t, "sqlite3")
		shared(key)
		if out, err := exec.Command("sqlite3", file, "DELETE FROM leases WHERE key = '"+key+"'").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	f.peace()
	f.sub("the second is held by a run that has only that one", func(h *host) {
		c := h.at(r.URL()).hold("elsewhere", 0)
		h.lockrun(75, "--key", "elsewhere", "--", "echo", "started").silent()
		h.at(local).lockrun(0, "--key", "elsewhere", "--", "true").silent()
		w := h.start("--key", "elsewhere", "--wait", "1h", "--", "true")
		c.release().wants(0)
		w.wants(0).silent()
	})
	f.sub("the second is gone before the start", func(h *host) {
		r.Freeze()
		defer r.Thaw()
		h.lockrun(69, "--key", "frozen-start", "--backend-timeout", "1s", "--", "echo", "started").says("lockrun: ", "redis")
		h.at(local).lockrun(0, "--key", "frozen-start", "--", "true").silent()
	})
	f.sub("the second is gone at the release", func(h *host) {
		c := h.hold("frozen-end", 4, "--ttl", outlast, "--backend-timeout", "2s")
		r.Freeze()
		defer r.Thaw()
		c.release().wants(4).says("lockrun: warning: the release was not answered")
		h.at(local).lockrun(0, "--key", "frozen-end", "--", "true").silent()
	})
	f.war()
}

// recordedHost has its leases in Redis and the record in MariaDB.
func recordedHost(t *testing.T) (h *host, leases *testserver.Redis, records *testserver.MariaDB) {
	t.Helper()
	leases = testserver.StartRedis(t, testserver.RedisConfig{Password: password})
	records = testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	h = newHost(t, leases.URL(), password).with("LOCKRUN_RECORD=" + records.URL())
	h.lockrun(0, "init")
	return h, leases, records
}

func TestServersRecord(t *testing.T) {
	t.Parallel()
	h, r, m := recordedHost(t)
	f := redisFleet(t, r.URL(), r)
	f.host = h
	f.peace()
	f.sub("flushed while it runs", func(h *host) { h.checkFlushed(r) })
	f.sub("the record is down", func(h *host) { h.checkRecordDown(m) })
	f.sub("both are down at the end", func(h *host) {
		c := h.hold("both-down", 6, "--run-id", "r1", "--ttl", outlast, "--backend-timeout", "2s")
		r.Freeze()
		m.Freeze()
		defer r.Thaw()
		defer m.Thaw()
		c.release().wants(6)
		for _, part := range []string{"the end is not recorded", "the release was not answered"} {
			if !strings.Contains(c.stderr(), part) {
				h.t.Errorf("%q is not said: %s", part, c.stderr())
			}
		}
	})
	f.war()
}

// outcomes are those of a key's runs, newest first.
func (h *host) outcomes(key string) (all []string) {
	h.t.Helper()
	for line := range strings.Lines(h.lockrun(0, "history", "--json", key).stdout()) {
		var rec struct{ Outcome string }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, rec.Outcome)
	}
	return all
}

// The lease's store forgets what it granted, while the job runs and after it has succeeded: a second host starts the same
// run id in neither case.
func (h *host) checkFlushed(r *testserver.Redis) {
	first := h.hold("flushed", 0, "--run-id", "r1", "--ttl", outlast, "--heartbeat", "20s")
	r.Must("FLUSHALL")
	h.lockrun(75, "--key", "flushed", "--run-id", "r1", "--", "echo", "started").silent()
	h.lockrun(0, "--key", "flushed", "--run-id", "r2", "--", "true").silent() // another id is not kept from running
	if first.over() {
		h.t.Fatalf("the first ended with %d: %s", first.code(), first.stderr())
	}
	first.release().wants(79)
	if got := h.outcomes("flushed"); got[0] != "lost" {
		h.t.Errorf("outcomes %v", got)
	}
	h.lockrun(0, "--key", "flushed", "--run-id", "r1", "--", "true").silent() // it was lost, and so not done
	r.Must("FLUSHALL")
	h.lockrun(76, "--key", "flushed", "--run-id", "r1", "--", "echo", "started").silent()
}

func (h *host) checkRecordDown(m *testserver.MariaDB) {
	quick := []string{"--ttl", outlast, "--backend-timeout", "2s"}
	h.hold("ended", 0, quick...).release().wants(0)
	c := h.hold("end", 3, append(quick, "--run-id", "r1")...)
	m.Freeze()
	thawed := false
	thaw := func() {
		if !thawed {
			m.Thaw()
		}
		thawed = true
	}
	defer thaw()
	h.lockrun(69, append(quick, "--key", "start", "--run-id", "r1", "--", "echo", "started")...).says("lockrun: ", "mysql")
	if s := h.status("start"); s["state"] != "free" {
		h.t.Errorf("what was not started is %v", s)
	}
	h.lockrun(5, append(quick, "--key", "plain", "--", "sh", "-c", "exit 5")...)
	c.release().wants(3)
	if !strings.Contains(c.stderr(), "the end is not recorded") {
		h.t.Errorf("it said %q", c.stderr())
	}
	back := h.hold("back", 0, append(quick, "--run-id", "r1", "--wait", "0", "--heartbeat", "100ms")[:4]...)
	time.Sleep(300 * time.Millisecond)
	thaw()
	back.release().wants(0)
	if got := h.outcomes("back"); len(got) != 1 || got[0] != "succeeded" {
		h.t.Errorf("a run whose start is not recorded has the outcomes %v", got)
	}
	h.lockrun(0, append(quick, "--key", "start", "--run-id", "r1", "--", "true")...).silent()
}

func TestServersFallback(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t, testserver.RedisConfig{Password: password})
	h := newHost(t, r.URL(), password)
	// Not the default, which for root is the machine's own, and knows what an earlier test run has done.
	h = h.with("LOCKRUN_ON_UNAVAILABLE=fallback", "LOCKRUN_BACKEND_TIMEOUT=1s", "LOCKRUN_FALLBACK=sqlite://"+h.file("fallback.db"))
	token := []string{"--key", "k", "--", "sh", "-c", `echo "[$LOCKRUN_TOKEN]"`}
	if out := h.lockrun(0, token...).stdout(); out == "[]\n" {
		t.Errorf("the backend is there, and the token is %q", out)
	}
	r.Freeze()
	run := h.lockrun(0, token...)
	if run.stdout() != "[]\n" || strings.Count(run.stderr(), "\n") != 1 || !strings.Contains(run.stderr(), "fallback") {
		t.Errorf("the token is %q, and it said %q", run.stdout(), run.stderr())
	}
	c := h.hold("k", 3)
	h.lockrun(75, "--key", "k", "--", "echo", "started")
	shown := h.lockrun(0, "status", "--json", "k")
	if !strings.Contains(shown.stdout(), "in the fallback sqlite:") {
		t.Errorf("status shows %q", shown.stdout())
	}
	h.lockrun(0, "--key", "id", "--run-id", "r1", "--", "true")
	r.Thaw()
	// The backend is there again, and knows nothing of the job that goes on under the fallback's lease.
	h.lockrun(75, "--key", "k", "--", "echo", "started").silent()
	w := h.start("--key", "k", "--wait", "1h", "--", "true")
	h.lockrun(76, "--key", "id", "--run-id", "r1", "--", "echo", "started").silent()
	c.release().wants(3)
	w.wants(0).silent()
	if out := h.lockrun(0, token...).silentOnStderr().stdout(); out == "[]\n" {
		t.Errorf("the backend is there again, and the token is %q", out)
	}
	// The backend was there at the end of the last run under the fallback, and was told.
	told := h.with("LOCKRUN_ON_UNAVAILABLE=fail", "LOCKRUN_FALLBACK=").lockrun(0, "history", "--json", "--outcome", "failed", "k")
	if !strings.Contains(told.stdout(), `"reason":"under the lease of the fallback`) {
		t.Errorf("the backend was told %q", told.stdout())
	}
	// The other way round: a job under the backend's lease, which goes away.
	c = h.hold("gone", 0, "--ttl", outlast)
	r.Freeze()
	defer r.Thaw()
	h.lockrun(75, "--key", "gone", "--", "echo", "started")
	c.release().wants(0)
	h.lockrun(0, "--key", "gone", "--", "true")
}

// silentOnStderr wants that nothing was said.
func (r *run) silentOnStderr() *run {
	r.h.t.Helper()
	if s := r.stderr(); s != "" {
		r.h.t.Errorf("%s said %q", r.name, s)
	}
	return r
}
