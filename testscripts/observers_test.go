package testscripts

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// watched is one host on which lockrun is run, with a store of its own.
type watched struct {
	*testing.T
	dir string
	env []string
}

func watchedHost(t *testing.T) *watched {
	dir := t.TempDir()
	return &watched{t, dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "XDG_STATE_HOME="+filepath.Join(dir, "state"),
		"GORACE=atexit_sleep_ms=0", "LOCKRUN_BACKEND=sqlite://"+filepath.Join(dir, "store.db"))}
}

// lockrun runs it and wants the code. It returns what was said.
func (w *watched) lockrun(code int, args ...string) (stderr string) {
	w.Helper()
	cmd := exec.Command(filepath.Join(binDir, "lockrun"), args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	var said strings.Builder
	cmd.Stderr = &said
	err := cmd.Run()
	var exit *exec.ExitError
	if got := cmd.ProcessState.ExitCode(); err != nil && !errors.As(err, &exit) || got != code {
		w.Errorf("lockrun %q: %v, want %d; it said %s", args, err, code, said.String())
	}
	return said.String()
}

// pinged is a server that writes down who asked for what.
type pinged struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string // METHOD path?query, in the order of coming
	bodies []string
	refuse int // so many requests are answered with 503
}

func pingServer(t *testing.T, tls bool) *pinged {
	p := &pinged{}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refuse > 0 {
			p.refuse--
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		p.asked = append(p.asked, r.Method+" "+r.URL.RequestURI())
		p.bodies = append(p.bodies, string(body))
	}))
	p.Config.ErrorLog = nil
	if tls {
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(p.Close)
	return p
}

// took returns what was asked since the last time.
func (p *pinged) took() (asked, bodies []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, bodies = p.asked, p.bodies
	p.asked, p.bodies = nil, nil
	return asked, bodies
}

// Healthchecks' protocol: /start, the URL itself, /N, /fail, /log.
func TestPing(t *testing.T) {
	t.Parallel()
	w, p := watchedHost(t), pingServer(t, false)
	down := []string{"--backend", "redis://127.0.0.1:1/0", "--backend-timeout", "200ms"}
	holder := exec.Command(filepath.Join(binDir, "lockrun"), "--key", "held", "--", "sleep", "1000")
	holder.Env = w.env
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Signal(os.Interrupt); _ = holder.Wait() }()
	w.lockrun(0, "--key", "once", "--run-id", "r", "--", "true")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		cmd := exec.Command(filepath.Join(binDir, "lockrun"), "status", "held")
		cmd.Env = w.env
		if cmd.Run() == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody holds it")
		}
	}
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{0, []string{"--key", "k", "--", "true"}, "/start "},
		{7, []string{"--key", "k", "--", "sh", "-c", "exit 7"}, "/start /7"},
		{75, []string{"--key", "k", "--", "sh", "-c", "exit 75"}, "/start /75"}, // COMMAND's own 75 is no skip
		{143, []string{"--key", "k", "--", "sh", "-c", "kill -TERM $$"}, "/start /143"},
		{124, []string{"--key", "k", "--timeout", "50ms", "--", "sleep", "1000"}, "/start /124"},
		{127, []string{"--key", "k", "--", "/nonexistent"}, "/127"},
		{0, []string{"--key", "k", "--timeout", "50ms", "--exit-code", "timeout=0", "--", "sleep", "1000"}, "/start /124"}, // what it is called changes nothing
		{0, []string{"--key", "k", "--exit-code", "not-found=0", "--", "/nonexistent"}, "/127"},
		{75, []string{"--key", "held", "--", "true"}, "/log"},
		{0, []string{"--key", "held", "--exit-code", "skipped=0", "--", "true"}, "/log"},
		{76, []string{"--key", "once", "--run-id", "r", "--", "true"}, "/log"},
		{69, append(down, "--key", "k", "--", "true"), "/fail"},
		{69, append(down, "--key", "k", "--on-unavailable", "skip", "--exit-code", "skipped=69", "--", "true"), "/log"},
		{0, append(down, "--key", "k", "--exit-code", "unavailable=0", "--", "true"), "/fail"},
		{75, append(down, "--key", "k", "--on-unavailable", "skip", "--", "true"), "/log"},
		{79, []string{"--key", "gone", "--ttl", "30s", "--heartbeat", "50ms", "--", "sh", "-c", filepath.Join(binDir, "lockrun") + " unlock gone --force; exec sleep 1000"}, "/start /fail"},
	} {
		w.lockrun(c.code, append([]string{"--ping", p.URL + "/ping/uuid?create=1"}, c.args...)...)
		var got []string
		asked, bodies := p.took()
		for i, a := range asked {
			path, ok := strings.CutPrefix(a, "POST /ping/uuid")
			path, ok2 := strings.CutSuffix(path, "?create=1")
			if !ok || !ok2 {
				t.Errorf("%v: asked for %s", c.args, a)
			}
			got = append(got, path)
			var rec map[string]any
			if err := json.Unmarshal([]byte(bodies[i]), &rec); err != nil || rec["key"] == "" {
				t.Errorf("%v: the body is %q", c.args, bodies[i])
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: pinged %q, want %q", c.args, got, c.want)
		}
	}
}

func TestPingOverTLS(t *testing.T) {
	t.Parallel()
	w, p := watchedHost(t), pingServer(t, true)
	said := w.lockrun(0, "--key", "k", "--hook-timeout", "2s", "--ping", p.URL+"/hunter2", "--", "true")
	if !strings.Contains(said, "certificate") || strings.Contains(said, "hunter2") {
		t.Errorf("of a server that nobody vouches for it said %q", said)
	}
	roots := filepath.Join(w.dir, "ca.pem")
	write(t, roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o644)
	w.env = append(w.env, "SSL_CERT_FILE="+roots)
	if said := w.lockrun(0, "--key", "k", "--ping", p.URL+"/hunter2", "--", "true"); said != "" {
		t.Errorf("it said %q", said)
	}
	if asked, _ := p.took(); !slices.Equal(asked, []string{"POST /hunter2/start", "POST /hunter2"}) {
		t.Errorf("pinged %q", asked)
	}
}

// A server that is away for a moment is asked again; one that refuses is not.
func TestPingIsTriedAgain(t *testing.T) {
	t.Parallel()
	w, p := watchedHost(t), pingServer(t, false)
	p.mu.Lock()
	p.refuse = 2
	p.mu.Unlock()
	if said := w.lockrun(0, "--key", "k", "--hook-timeout", "60s", "--ping", p.URL, "--", "true"); said != "" {
		t.Errorf("it said %q", said)
	}
	if asked, _ := p.took(); !slices.Equal(asked, []string{"POST /start", "POST /"}) {
		t.Errorf("pinged %q", asked)
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	began := time.Now()
	said := w.lockrun(3, "--key", "k", "--hook-timeout", "10m", "--ping", refusing.URL+"/hunter2", "--", "sh", "-c", "exit 3")
	if !strings.Contains(said, "404") || strings.Contains(said, "hunter2") || time.Since(began) > 5*time.Minute {
		t.Errorf("after %v it said %q", time.Since(began), said)
	}
}

// OBS-02: whoever takes a connection and never answers costs no more than the bound, and changes nothing.
func TestBlackHoles(t *testing.T) {
	t.Parallel()
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	url := "http://user:hunter2@" + hole.Addr().String() + "/hunter3"
	w := watchedHost(t)
	for _, c := range []struct {
		code int
		args []string
	}{
		{3, []string{"--key", "k", "--", "sh", "-c", "exit 3"}},
		{69, []string{"--key", "k", "--backend", "redis://127.0.0.1:1/0", "--backend-timeout", "200ms", "--", "true"}},
		// Renewed at least four times, and while the start hangs: the lease is half as long as the run.
		{0, []string{"--key", "k", "--ttl", "8s", "--", "sleep", "16"}},
		{79, []string{"--key", "gone", "--ttl", "30s", "--heartbeat", "50ms", "--", "sh", "-c", filepath.Join(binDir, "lockrun") + " unlock gone --force; exec sleep 1000"}},
	} {
		began := time.Now()
		said := w.lockrun(c.code, append([]string{"--hook-timeout", "2s", "--ping", url, "--metrics-file", "sums.prom", "--pushgateway", url}, c.args...)...)
		if strings.Contains(said, "hunter") {
			t.Errorf("%v: it said %q", c.args, said)
		}
		if !strings.Contains(said, "no answer in time") {
			t.Errorf("%v: it said %q", c.args, said)
		}
		if took := time.Since(began); took < time.Second || took > 90*time.Second {
			t.Errorf("%v took %v", c.args, took)
		}
	}
}

// Whatever keeps a Pushgateway from being told is told as it is, and the gateway's password is not.
func TestWhyAPushFailed(t *testing.T) {
	t.Parallel()
	w := watchedHost(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for url, want := range map[string]string{"http://u:hunter2@127.0.0.1:1/": "http://127.0.0.1:1: .*refused", "http://u:hunter2@" + silent.Addr().String(): "http://" + silent.Addr().String() + ": no answer in time"} {
		said := w.lockrun(0, "--key", "why", "--hook-timeout", "1s", "--metrics-file", "why.prom", "--pushgateway", url, "--", "true")
		if !regexp.MustCompile("^lockrun: warning: the metrics were not sent, but are kept, .*"+want+".*\n$").MatchString(said) || strings.Contains(said, "hunter2") {
			t.Errorf("of %s it said %s", want, said)
		}
	}
}

// The real Pushgateway has one group for each key and host, with its running totals.
func TestPushgateway(t *testing.T) {
	t.Parallel()
	g := testserver.StartPushgateway(t)
	w := watchedHost(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"plain", "with/slash", "with space", "n\new", `quo"te`, "..", "ключ", "100%"}
	for range 2 {
		for _, key := range keys {
			if said := w.lockrun(0, "--key", key, "--metrics-file", "sums.prom", "--pushgateway", g.URL(), "--", "true"); said != "" {
				t.Errorf("%q: %s", key, said)
			}
		}
	}
	w.lockrun(4, "--key", "plain", "--metrics-file", "sums.prom", "--pushgateway", g.URL()+"/", "--", "sh", "-c", "exit 4")
	const at = 20
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			w.lockrun(0, "--key", "crowd", "--slots", fmt.Sprint(at), "--hook-timeout", "10m", "--backend-timeout", "5m", "--metrics-file", "sums.prom", "--pushgateway", g.URL(), "--", "true")
		})
	}
	all.Wait()
	text, err := g.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer("\n", `\n`, `"`, `\"`)
	for _, key := range keys {
		want := fmt.Sprintf(`lockrun_runs_total{instance="%s",job="lockrun",key="%s",outcome="succeeded"} 2`, host, escaped.Replace(key))
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, want := range []string{
		`lockrun_runs_total{instance="` + host + `",job="lockrun",key="plain",outcome="failed"} 1`,
		`lockrun_last_exit_code{instance="` + host + `",job="lockrun",key="plain"} 4`,
		`lockrun_runs_total{instance="` + host + `",job="lockrun",key="crowd",outcome="succeeded"} ` + fmt.Sprint(at),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	// A gateway that is away costs a warning, and its next push has everything.
	g.Kill()
	if said := w.lockrun(0, "--key", "plain", "--hook-timeout", "1s", "--metrics-file", "sums.prom", "--pushgateway", g.URL(), "--", "true"); strings.Count(said, "\n") != 1 || !strings.Contains(said, "next push") {
		t.Errorf("it said %q", said)
	}
	g.Restart()
	w.lockrun(0, "--key", "plain", "--metrics-file", "sums.prom", "--pushgateway", g.URL(), "--", "true")
	if text, err := g.Metrics(); err != nil || !strings.Contains(text, `key="plain",outcome="succeeded"} 4`) {
		t.Errorf("%v\n%s", err, text)
	}
}
