package testscripts

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/rounds"
)

// TestEmbedded is what shows only in many rounds, on the embedded store.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	h := newHost(t, "", "")
	h = h.at("sqlite://" + h.file("store.db"))
	h.sub("crowd", (*host).checkCrowd)
	h.sub("short runs", func(h *host) { h.checkShortRuns(10) })
	h.sub("first starts", func(h *host) {
		h.firstRuns(3, 30, false, func(round string) string { return "sqlite://" + h.file(round+".db") })
	})
}

// CNC-01: one of many that start at one instant on a key that nobody has used runs; the others are told so for certain.
func (h *host) checkCrowd() {
	for i := range rounds.Of(1, 100) {
		h.sub(fmt.Sprint("round ", i), func(h *host) { h.crowd(strings.ReplaceAll(h.t.Name(), "/", "-"), rounds.Of(30, 50)) })
	}
}

func (h *host) crowd(key string, many int) {
	all := make([]*run, many)
	for i := range all {
		all[i] = h.start("--key", key, "--backend-timeout", "20s", "--", "sh", "-c", "echo >>"+key+".ran; "+job, "job", key, "0")
	}
	h.await("all but one end", func() bool {
		over := 0
		for _, r := range all {
			if r.over() {
				over++
			}
		}
		return over >= many-1
	})
	h.touch(key + ".go")
	codes := map[int]int{}
	for _, r := range all {
		<-r.done
		codes[r.code()]++
		r.silent()
	}
	if codes[0] != 1 || codes[75] != many-1 {
		h.t.Errorf("codes and how often: %v", codes)
	}
	if n := strings.Count(h.read(h.file(key+".ran")), "\n"); n != 1 {
		h.t.Errorf("%d jobs ran", n)
	}
}

// LSE-03: short jobs with many beats, half of them told to end at any moment. The key is free after each, and was given
// back: nothing is left to run out. A server that does not answer an acquire in the time that TERM leaves it is the exception.
func (h *host) checkShortRuns(few int) {
	const key = "short-lived"
	slow := 0
	for i := range rounds.Of(few, 500) {
		h.sub(fmt.Sprint("run ", i), func(h *host) {
			if h.shortRun(key, i%2 == 1) {
				slow++
			}
		})
	}
	for line := range strings.Lines(h.lockrun(0, "history", "--json", "-n", "1000", key).stdout()) {
		var r struct{ Outcome string }
		err := json.Unmarshal([]byte(line), &r)
		if r.Outcome == "crashed" {
			slow--
		}
		if err != nil || slow < 0 {
			h.t.Errorf("it was not given back: %s", line)
		}
	}
}

// shortRun tells whether the run was ended before its job began and the server was too slow to take the lease back.
func (h *host) shortRun(key string, told bool) (slow bool) {
	started := h.file(fmt.Sprint(key, ".", h.runs.Load()))
	r := h.start("--key", key, "--ttl", "2s", "--heartbeat", "20ms", "--", "sh", "-c", `: >"$1"; exec sleep "$2"`, "job",
		started, fmt.Sprint(rand.N(80*time.Millisecond).Seconds()))
	if told {
		time.Sleep(rand.N(100 * time.Millisecond)) // the moment, anywhere between the start and the end
		_ = r.cmd.Process.Signal(syscall.SIGTERM)  // which it may have met already
	}
	<-r.done
	// On a machine that keeps lockrun from its beats for two seconds the lease is lost, as it has to be.
	switch code := r.code(); {
	case code == 79:
		h.t.Log(r.stderr())
	case code != 0 && (code != 143 || !told):
		h.t.Fatalf("it ended with %d: %s", code, r.stderr())
	}
	s := h.status(key)
	_, never := os.Stat(started)
	if s["state"] == "held" && r.code() == 143 && never != nil {
		h.t.Logf("ended in the middle of an acquire that nobody answered: %v", s)
		h.await("the lease runs out", func() bool { s = h.status(key); return s["state"] == "free" })
		return true
	}
	if s["state"] != "free" {
		h.t.Fatalf("after an end with %d it is %v", r.code(), s)
	}
	return false
}

// CNC-03: many start at once where nothing is yet, each with a key of its own. at names a fresh store for each round; where
// it needs init, many do that at once before.
func (h *host) firstRuns(few, many int, init bool, at func(round string) string) {
	for i := range rounds.Of(few, 100) {
		fresh := h.at(at(fmt.Sprint("fresh", i)))
		fresh.sub(fmt.Sprint("round ", i), func(h *host) {
			if init {
				h.allRun(many, func(int) []string { return []string{"init", "--backend-timeout", "30s"} })
			}
			for _, r := range h.allRun(many, func(n int) []string {
				return []string{"--key", fmt.Sprint("first-", n), "--backend-timeout", "30s", "--", "true"}
			}) {
				r.silent()
			}
		})
	}
}

// allRun starts many at once, all of which have to end well.
func (h *host) allRun(many int, args func(n int) []string) []*run {
	all := make([]*run, many)
	for i := range all {
		all[i] = h.start(args(i)...)
	}
	for _, r := range all {
		r.wants(0)
	}
	return all
}
