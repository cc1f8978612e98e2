package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// calm ends all faults and looks at what is left: no process, no lease, keys that can be had, and a history that tells of
// every success.
func (g *game) calm() {
	g.mu.Lock()
	healthy := g.failure == nil
	g.mu.Unlock()
	if !healthy {
		return
	}
	g.arena.heal()
	g.processes()
	g.keys()
	g.leases()
	g.history()
}

// keys: each can be had. That comes before the look for leases: where a broker of Kafka has begun anew, what ran out
// meanwhile is told of as held until something is written.
func (g *game) keys() {
	for i, s := range shared {
		if g.small && i == 3 {
			break
		}
		if out, code := g.ask("--key", s.key, "--slots", strconv.Itoa(s.slots), "--ttl", "5s", "--wait", "10s", "--", "true"); code != 0 {
			g.violated(violation{Rule: "keys can be had afterwards", What: fmt.Sprintf("%s: %d, %s", s.key, code, out)})
		}
	}
}

// ask runs one command of lockrun against the store.
func (g *game) ask(args ...string) (string, int) {
	cmd := exec.Command(g.lockrun, args...)
	cmd.Env = g.environ()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := startOn(cmd); err != nil {
		return err.Error(), -1
	}
	_ = cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// until asks again until a question is answered with "", and takes the last answer for a violation where that is late.
func (g *game) until(rule string, most time.Duration, question func() string) {
	for start := bootNow(); ; time.Sleep(20 * time.Millisecond) {
		what := question()
		if what == "" {
			return
		}
		if bootNow()-start > most {
			g.violated(violation{Rule: rule, What: what + fmt.Sprintf(", %v after the end", most)})
			return
		}
	}
}

// processes: nobody who executes our lockrun or our job is left.
func (g *game) processes() {
	g.until(ruleGone, killBound+g.slack, func() string {
		if left := g.left(); len(left) > 0 {
			return fmt.Sprintf("processes %v live", left)
		}
		return ""
	})
}

// left are the processes of this game that live. The jobs of all games execute one file, so that their folder tells.
func (g *game) left() (pids []int) {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, name := range exes {
		exe, err := os.Readlink(name)
		if err != nil || exe != g.lockrun && exe != g.job {
			continue
		}
		dir, err := os.Readlink(filepath.Join(filepath.Dir(name), "cwd"))
		if exe == g.lockrun || err == nil && dir == g.dir {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// sweep ends what a broken lockrun has left.
func (g *game) sweep() {
	for _, pid := range g.left() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// leases: none outlives its TTL.
func (g *game) leases() {
	most := g.ttls[len(g.ttls)-1] + g.slack
	for _, w := range g.windows {
		most = max(most, g.ttls[len(g.ttls)-1]+g.slack+w.Shift)
	}
	g.until("no lease is left over", most, func() string {
		out, code := g.ask("status", "--json")
		if code != 0 {
			return fmt.Sprintf("status: %d, %s", code, out)
		}
		for d := json.NewDecoder(bytes.NewReader([]byte(out))); d.More(); {
			var s struct{ Key, State string }
			if err := d.Decode(&s); err != nil {
				return err.Error()
			}
			if s.State == "held" && !g.toBeHad(s.Key) {
				return s.Key + " is held"
			}
		}
		return ""
	})
}

// toBeHad tells whether a key can be had although it is told of as held. So it is on Kafka under a new leader, until somebody
// asks for the key.
func (g *game) toBeHad(key string) bool {
	if !g.arena.begunAnew {
		return false
	}
	_, code := g.ask("--key", key, "--ttl", "5s", "--wait", "10s", "--", "true")
	return code == 0
}

// history: every run that ended with 0, and without a warning, is recorded so. A store that forgot need not know.
func (g *game) history() {
	if slices.ContainsFunc(g.windows, func(w window) bool { return w.Forgets && w.Key == "" || w.Marks }) {
		return
	}
	known := map[string]string{} // outcome by key and token
	for _, s := range shared {
		out, code := g.ask("history", "--json", s.key)
		if code != 0 {
			g.violated(violation{Rule: "the history tells of successes", What: fmt.Sprintf("history %s: %d, %s", s.key, code, out)})
			return
		}
		for d := json.NewDecoder(bytes.NewReader([]byte(out))); d.More(); {
			var r struct {
				Key, Outcome string
				Token        json.Number
			}
			if err := d.Decode(&r); err != nil {
				g.violated(violation{Rule: "the history tells of successes", What: err.Error()})
				return
			}
			known[r.Key+" "+r.Token.String()] = r.Outcome
		}
	}
	g.compare(known)
}

// compare looks at the last runs of each key, since a history is not endless.
func (g *game) compare(known map[string]string) {
	seen := map[string]int{}
	for _, r := range slices.Backward(g.runs) {
		if r.Code == codeSkipped || r.Code == codeDone || r.Plan.Key[:2] == "lo" {
			continue
		}
		// A lease that was lost before its job began has a record, too.
		if seen[r.Plan.Key]++; seen[r.Plan.Key] > 800 || r.Job == nil || r.Code != 0 || r.Stderr != "" {
			continue
		}
		if got := known[r.Plan.Key+" "+strconv.FormatInt(r.Job.Token, 10)]; got != "succeeded" {
			g.violated(violation{Rule: "the history tells of successes", Runs: []int{r.N}, What: fmt.Sprintf("token %d of %s is recorded as %q", r.Job.Token, r.Plan.Key, got)})
		}
	}
}

// judge applies the checker to what there is so far, and stores what it finds.
func (g *game) judge() *checker {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := &checker{windows: slices.Clone(g.windows), slack: g.slack, now: bootNow(), late: &g.late}
	for _, r := range g.runs {
		k.runs = append(k.runs, r.clone())
	}
	k.check()
	g.found = k.out
	return k
}

func (r *run) clone() *run {
	c := *r
	c.Acts = slices.Clone(r.Acts)
	if r.Job != nil {
		j := *r.Job
		j.Witnessed = slices.Clone(j.Witnessed)
		c.Job = &j
	}
	return &c
}

// report sums up.
func (g *game) report(start time.Duration) *report {
	k := g.judge()
	r := &report{arena: g.arena.name, seed: g.seed, took: bootNow() - start, runs: len(g.runs), grants: g.grants, harms: maps.Clone(g.harms),
		faults: map[string]int{}, codes: map[int]int{}, starved: k.starved, failure: g.failure}
	r.violations = append(slices.Clone(g.violations), g.found...)
	for _, w := range g.windows {
		r.faults[w.Fault]++
	}
	for _, run := range g.runs {
		r.codes[run.Code]++
	}
	for pair, why := range k.met {
		switch why {
		case "":
		case machineLate:
			r.late = append(r.late, pair)
		default:
			r.excused++
		}
	}
	if len(g.recoveries) > 0 {
		r.recovery = slices.Max(g.recoveries)
	}
	if len(r.violations) > 0 || g.keep {
		r.dir = g.dir
		g.dump()
	}
	return r
}

// dump leaves everything for whoever has to find out, one object a line.
func (g *game) dump() {
	f, err := os.Create(g.path("runs.json"))
	if err != nil {
		return
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, w := range g.windows {
		_ = e.Encode(w)
	}
	for _, r := range g.runs {
		_ = e.Encode(r)
	}
	for _, v := range slices.Concat(g.violations, g.found) {
		_ = e.Encode(v)
	}
	_ = e.Encode(map[string]time.Duration{"lateness": g.late.most(0, cmp.Or(bootNow(), 1))})
}
