package testscripts

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/metrics"
	"github.com/lockrun/lockrun/internal/testserver"
)

const rulesFile = "examples/prometheus/lockrun.rules.yml"

// TestPrometheusRules runs the cases of the rules, and wants each alert to have one in which it fires and one in which it
// does not.
func TestPrometheusRules(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "lockrun.rules.yml"}, {"test", "rules", "lockrun.rules.test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.Join(repo, "examples/prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	cases := readRepo(t, "examples/prometheus/lockrun.rules.test.yml")
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(readRepo(t, rulesFile), -1) {
		if !regexp.MustCompile(`alertname: ` + m[1] + `\n\s+exp_alerts:\n\s+- exp_labels`).MatchString(cases) {
			t.Errorf("%s fires in no case", m[1])
		}
		if !strings.Contains(cases, "alertname: "+m[1]+", exp_alerts: []}") {
			t.Errorf("%s is silent in no case", m[1])
		}
	}
}

// A case that could not fail would show nothing: rules that are a little wrong have to be found by them.
func TestPrometheusCasesCanFail(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "promtool")
	rules := readRepo(t, rulesFile)
	head, tests, _ := strings.Cut(readRepo(t, "examples/prometheus/lockrun.rules.test.yml"), "  - name:")
	for _, c := range []struct{ alert, old, new string }{
		{"LockrunContention", "> 0.05", "> 0.5"},
		{"LockrunCrashed", `outcome="crashed"`, `outcome="lost"`},
		{"LockrunNoSuccess", "vector(7200)", "vector(72000)"},
		{"LockrunFallback", "offset 10m)", "offset 100m)"},
		{"LockrunWaitersQueueing", "lockrun_waiters) > 3", "lockrun_waiters) > 0"},
	} {
		changed := strings.ReplaceAll(rules, c.old, c.new)
		if changed == rules {
			t.Fatalf("%s is not in the rules", c.old)
		}
		cases := head // only those about this alert: each costs promtool a database
		for _, block := range strings.Split(tests, "\n  - name:") {
			if strings.Contains(block, "alertname: "+c.alert) {
				cases += "  - name:" + block + "\n"
			}
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "lockrun.rules.yml"), []byte(changed), 0o644)
		write(t, filepath.Join(dir, "t.yml"), []byte(cases), 0o644)
		cmd := exec.Command("promtool", "test", "rules", "t.yml")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "alertname: "+c.alert) {
			t.Errorf("with %s for %s all cases pass: %v\n%s", c.new, c.old, err, out)
		}
	}
}

func readRepo(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the examples ask for is what lockrun writes: a metric that was renamed must not leave them asking for the old one.
func TestPrometheusExamplesKnowTheMetrics(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"lockrun_runs_total": false}
	for _, name := range metrics.Names() {
		known[name] = false
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{rulesFile, "examples/prometheus/grafana-dashboard.json"} {
		for _, name := range regexp.MustCompile(`\blockrun_[a-z_]+`).FindAllString(readRepo(t, file), -1) {
			if base := suffix.ReplaceAllString(name, ""); strings.HasSuffix(base, "_duration_seconds") {
				name = base
			}
			if _, ok := known[name]; !ok {
				t.Errorf("%s asks for %s, which nothing writes", file, name)
			}
			known[name] = true
		}
	}
	for name, asked := range known {
		if !asked {
			t.Errorf("no example asks for %s", name)
		}
	}
}

// fed is a Prometheus that is fed by real runs.
type fed struct {
	*host
	*testserver.Prometheus
}

// feed starts runs of all kinds, and a Prometheus that is fed by both ways: "lockrun metrics --listen" over the store, and
// a metrics file, which is handed out as node_exporter does.
func feed(t *testing.T) *fed {
	t.Helper()
	h := newHost(t, "", "")
	h.backend = "sqlite://" + h.file("lockrun.db")
	file := h.file("lockrun.prom")
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }))
	t.Cleanup(node.Close)
	listen := h.start("metrics", "--listen", "127.0.0.1:0", "-v")
	address := regexp.MustCompile(`http://([0-9.:]+)/metrics`)
	h.await("lockrun metrics listens", func() bool { return address.MatchString(listen.stderr()) })
	h.ordinaryRuns(file)
	p := testserver.StartPrometheus(t, testserver.PrometheusConfig{Rules: []string{filepath.Join(repo, rulesFile)}, Targets: map[string]string{
		"lockrun": address.FindStringSubmatch(listen.stderr())[1],
		"node":    strings.TrimPrefix(node.URL, "http://"),
	}})
	return &fed{h, p}
}

// ordinaryRuns are runs of the key "k" that end well and otherwise, and one that is skipped.
func (h *host) ordinaryRuns(file string) {
	h.t.Helper()
	h.lockrun(0, "--key", "k", "--metrics-file", file, "--", "true")
	h.lockrun(3, "--key", "k", "--metrics-file", file, "--", "sh", "-c", "exit 3")
	c := h.hold("k", 0, "--metrics-file", file)
	h.lockrun(75, "--key", "k", "--metrics-file", file, "--", "true")
	c.release().wants(0)
	for _, name := range []string{"k.go", "k.pid"} { // for the next job of this name
		if err := os.Remove(h.file(name)); err != nil {
			h.t.Fatal(err)
		}
	}
}

// has waits until a query has a result, and gives it.
func (f *fed) has(expr string, ok func([]testserver.Sample) bool) {
	f.host.t.Helper()
	var last []testserver.Sample
	var failure error
	for start := time.Now(); time.Since(start) < 2*patience; time.Sleep(100 * time.Millisecond) {
		if last, failure = f.Query(expr); failure == nil && ok(last) {
			return
		}
		if failure != nil && strings.Contains(failure.Error(), "bad_data") {
			break
		}
	}
	f.host.t.Errorf("%s: %v, %v", expr, last, failure)
}

// TestDashboard has every query of the dashboard answered by a Prometheus that was fed by real runs.
func TestDashboard(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "prometheus")
	f := feed(t)
	c := f.hold("k", 0) // held, and waited for, while the queries are asked
	f.start("--key", "k", "--wait", "forever", "--", "true")
	f.ordinaryRunsAgain()
	any := func(s []testserver.Sample) bool { return len(s) > 0 }
	queries := dashboardQueries(t)
	if len(queries) < 20 {
		t.Errorf("only %d queries were found", len(queries))
	}
	f.has(`lockrun_waiters{key="k"} > 0`, any)
	f.has(`increase(lockrun_runs_total{key="other",outcome="succeeded"}[1m]) > 0`, any)
	for _, q := range queries {
		f.has(q, any)
	}
	c.release().wants(0)
}

// ordinaryRunsAgain lets counters rise while Prometheus looks.
func (f *fed) ordinaryRunsAgain() {
	file := f.file("lockrun.prom")
	for range 3 {
		f.lockrun(0, "--key", "other", "--metrics-file", file, "--", "true")
		f.has(`lockrun_runs_total{key="other"}`, func(s []testserver.Sample) bool { return len(s) > 0 })
	}
}

// dashboardQueries are the queries of the dashboard, as Grafana asks them when everything is selected.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Annotations struct{ List []struct{ Expr string } }
		Panels      []struct {
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readRepo(t, "examples/prometheus/grafana-dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := strings.NewReplacer("$job", ".*", "$key", ".*", "$__rate_interval", "1m", "$__range", "5m")
	var queries []string
	for _, v := range dashboard.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(v.Definition); m != nil {
			queries = append(queries, all.Replace(m[1]))
		}
	}
	for _, p := range dashboard.Panels {
		if p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %+v", p)
		}
		for _, target := range p.Targets {
			queries = append(queries, all.Replace(target.Expr))
		}
	}
	for _, q := range queries {
		if strings.Contains(q, "$") {
			t.Errorf("a variable that Grafana would have to fill: %s", q)
		}
	}
	return queries
}

// TestAlertsFromRealRuns goes from a run to its alert: one that fails, one that is unlocked, and one that is killed.
func TestAlertsFromRealRuns(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "prometheus")
	f := feed(t)
	f.has(`ALERTS{alertname="LockrunFailed",alertstate="firing",key="k"}`, func(s []testserver.Sample) bool { return len(s) == 1 })
	f.has(`ALERTS{alertname=~"LockrunUnlocked|LockrunCrashed|LockrunTakeover|LockrunLeaseLost"}`, func(s []testserver.Sample) bool { return len(s) == 0 })
	broken := f.hold("k", 0, "--heartbeat", "100ms", "--ttl", "20s")
	f.lockrun(0, "unlock", "k", "--force")
	broken.wants(79)
	f.has(`ALERTS{alertname="LockrunUnlocked",alertstate="firing",key="k"}`, func(s []testserver.Sample) bool { return len(s) == 1 })
	killed := f.hold("victim", 0)
	killed.signal(syscall.SIGKILL)
	killed.wants(137)
	f.has(`ALERTS{alertname="LockrunCrashed",alertstate="firing",key="victim"}`, func(s []testserver.Sample) bool { return len(s) == 1 })
	f.lockrun(0, "--key", "victim", "--", "true")
	f.has(`ALERTS{alertname="LockrunTakeover",alertstate="firing",key="victim"}`, func(s []testserver.Sample) bool { return len(s) == 1 })
	rules, err := f.Rules()
	if err != nil || len(rules) < 15 {
		t.Errorf("%d rules, %v", len(rules), err)
	}
	for _, r := range rules {
		if r.Health != "ok" {
			t.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
		}
	}
}
