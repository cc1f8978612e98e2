package testscripts

import (
	"encoding/json"
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

// example is a host on which the recipes of examples/ are tried, with the embedded store.
func example(t *testing.T) *host {
	t.Helper()
	h := newHost(t, "", "")
	return h.at("sqlite://" + h.file("lockrun.db"))
}

// sh runs a script of examples/ in the host's folder, with lockrun in PATH, and returns all that it says.
func (h *host) sh(stdin string, env []string, argv ...string) (string, error) {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(repo, "examples", argv[0]), argv[1:]...)
	cmd.Dir, cmd.Stdin = h.dir, strings.NewReader(stdin)
	cmd.WaitDelay = 10 * time.Second // for what a script leaves behind with its stdout
	cmd.Env = append([]string{"PATH=" + h.dir + ":" + binDir + ":" + os.Getenv("PATH"), "HOME=" + h.dir, "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0",
		"LOCKRUN_BACKEND=" + h.backend}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// program puts a program into the host's folder, where scripts find it first.
func (h *host) program(name, text string) string {
	h.t.Helper()
	path := h.file(name)
	write(h.t, path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)
	return path
}

// records are run records as hooks get them: of a failure, of a skip, and of a key that tries to get out of every quoting.
func (h *host) records() (failed, skipped, odd string) {
	h.t.Helper()
	h.lockrun(3, "--key", "k", "--holder", "web-1", "--", "sh", "-c", "exit 3")
	c := h.hold("held", 0, "--holder", "web-2")
	h.lockrun(75, "--key", "held", "--", "true")
	c.release().wants(0)
	h.lockrun(4, "--key", "a\"b\\c\nTo: you@example.com <!channel> $(touch pwned) ü", "--holder", "x", "--", "sh", "-c", "exit 4")
	return h.lockrun(0, "history", "--json", "-n", "1", "k").stdout(), h.lockrun(0, "history", "--json", "--outcome", "skipped").stdout(),
		strings.SplitN(h.lockrun(0, "history", "--json", "-n", "1").stdout(), "\n", 2)[0]
}

func TestMailHook(t *testing.T) {
	t.Parallel()
	h := example(t)
	failed, _, odd := h.records()
	h.program("sendmail", `echo "args: $*" >mail; cat >>mail`)
	for _, c := range []struct{ record, event, subject string }{
		{failed, "failed", "Subject: lockrun: k failed on web-1, exit code 3\n"},
		{odd, "failed", `Subject: lockrun: a\"b\\c\nTo: you@example.com \u003c!channel\u003e $(touch pwned) ?? failed on x, exit code 4` + "\n"},
	} {
		if out, err := h.sh(c.record, []string{"LOCKRUN_EVENT=" + c.event, "SENDMAIL=sendmail"}, "hooks/mail.sh", "ops@example.com"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		mail := h.read(h.file("mail"))
		head, body, found := strings.Cut(mail, "\n\n")
		if !found || !strings.HasPrefix(head, "args: -t -oi\nTo: ops@example.com\n") || strings.Count(head, "\nTo: ") != 1 || !strings.Contains(head, c.subject) ||
			!strings.Contains(body, strings.TrimSpace(c.record)) {
			t.Errorf("the mail is\n%s", mail)
		}
	}
	if _, err := os.Stat(h.file("pwned")); err == nil {
		t.Error("a key was executed")
	}
	if out, err := h.sh(failed, nil, "hooks/mail.sh"); err == nil || !strings.Contains(out, "usage: mail.sh") {
		t.Errorf("without an address: %s", out)
	}
}

func TestWebhookHook(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	h := example(t)
	failed, skipped, odd := h.records()
	var mu sync.Mutex
	var got []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		var message struct{ Text string }
		if err := json.Unmarshal(body, &message); err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/services/T0/secret" {
			t.Errorf("%s %s: %s, %v", r.Method, r.URL, body, err)
		}
		got = append(got, message.Text)
		w.WriteHeader(status)
	}))
	defer server.Close()
	write(t, h.file("slack.url"), []byte(server.URL+"/services/T0/secret\n"), 0o600)
	for _, c := range []struct{ record, event, want string }{
		{failed, "failed", "lockrun: k failed on web-1, exit code 3"},
		{skipped, "skipped", "lockrun: held skipped on "},
		{odd, "failed", "lockrun: a\"b\\c\nTo: you@example.com &lt;!channel&gt; $(touch pwned) ü failed on x, exit code 4"},
	} {
		out, err := h.sh(c.record, []string{"LOCKRUN_EVENT=" + c.event}, "hooks/slack.sh", h.file("slack.url"))
		if err != nil || out != "" {
			t.Errorf("%v: %s", err, out)
		}
		mu.Lock()
		if n := len(got); n == 0 || !strings.HasPrefix(got[n-1], c.want) {
			t.Errorf("posted %q, want %q", got, c.want)
		}
		status = http.StatusInternalServerError
		mu.Unlock()
		if out, err := h.sh(c.record, nil, "hooks/slack.sh", h.file("slack.url")); err == nil || strings.Contains(out, "secret") {
			t.Errorf("a webhook that refuses: %v, %q", err, out)
		}
		mu.Lock()
		status = http.StatusOK
		mu.Unlock()
	}
}

func TestSyslogHook(t *testing.T) {
	t.Parallel()
	need(t, "logger")
	h := example(t)
	failed, skipped, _ := h.records()
	socket := filepath.Join(t.TempDir(), "log")
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// cron is facility 9: 9*8 + 3 for an error, 5 for a notice.
	for _, c := range []struct{ record, event, want string }{{failed, "failed", `^<75>.* lockrun: lockrun: k failed on web-1, exit code 3$`}, {skipped, "skipped", `^<77>.* lockrun: lockrun: held skipped on .* \(held by web-2\)$`}} {
		if out, err := h.sh(c.record, []string{"LOCKRUN_EVENT=" + c.event}, "hooks/syslog.sh", "-u", socket); err != nil || out != "" {
			t.Errorf("%v: %s", err, out)
		}
		buf := make([]byte, 4096)
		if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, _, err := l.ReadFrom(buf)
		if text := strings.TrimSpace(string(buf[:n])); err != nil || !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("logged %q, %v", text, err)
		}
	}
}

// TestHooksOfARealRun has lockrun itself run the three of them.
func TestHooksOfARealRun(t *testing.T) {
	t.Parallel()
	need(t, "curl", "logger")
	h := example(t)
	posted := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted <- string(body)
	}))
	defer server.Close()
	write(t, h.file("slack.url"), []byte(server.URL+"/secret\n"), 0o600)
	sendmail := h.program("sendmail", "cat >"+h.file("mail"))
	socket := filepath.Join(t.TempDir(), "log")
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hooks := filepath.Join(repo, "examples/hooks")
	r := h.with("SENDMAIL="+sendmail).lockrun(3, "--key", "k", "--hook-timeout", "50s", "--hook", "failed="+hooks+"/mail.sh ops@example.com",
		"--hook", "failed="+hooks+"/slack.sh "+h.file("slack.url"), "--hook", "failed="+hooks+"/syslog.sh -u "+socket,
		"--hook", "succeeded=touch "+h.file("wrong"), "--", "sh", "-c", "exit 3")
	if said := r.stderr(); said != "" {
		t.Errorf("the hooks said %s", said)
	}
	if mail := h.read(h.file("mail")); !strings.Contains(mail, "\nSubject: lockrun: k failed on ") || !strings.Contains(mail, `"exit_code":3`) {
		t.Errorf("the mail is\n%s", mail)
	}
	select {
	case body := <-posted:
		if !strings.HasPrefix(body, `{"text":"lockrun: k failed on `) {
			t.Errorf("posted %s", body)
		}
	default:
		t.Error("nothing was posted")
	}
	buf := make([]byte, 4096)
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := l.ReadFrom(buf); err != nil || !strings.Contains(string(buf[:n]), "lockrun: k failed on ") {
		t.Errorf("logged %q, %v", buf[:n], err)
	}
	if _, err := os.Stat(h.file("wrong")); err == nil {
		t.Error("a hook of another event was run")
	}
}

// TestSystemdUnits has systemd read the units, and runs the command of the service.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	need(t, "systemd-analyze")
	h := example(t)
	ran := h.program("order-reconcile", `echo "$LOCKRUN_KEY $LOCKRUN_RUN_ID" >>`+h.file("ran"))
	var files []string
	var exec0 string
	for _, name := range []string{"order-reconcile.service", "order-reconcile.timer"} {
		text := strings.NewReplacer("/usr/local/bin/lockrun", filepath.Join(binDir, "lockrun"), "/usr/local/bin/order-reconcile", ran).
			Replace(readRepo(t, "examples/systemd/"+name))
		write(t, h.file(name), []byte(text), 0o644)
		files = append(files, h.file(name))
		if m := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text); m != nil {
			exec0 = m[1]
		}
	}
	if out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, files...)...).CombinedOutput(); err != nil || strings.Contains(string(out), "order-reconcile") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if out, err := exec.Command("systemd-analyze", "calendar", "*:0/5").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	write(t, h.file("wrong.service"), []byte("[Service]\nExecStart=/nonexistent/lockrun --key k\n"), 0o644)
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", h.file("wrong.service")).CombinedOutput(); err == nil && !strings.Contains(string(out), "wrong.service") {
		t.Errorf("a unit that cannot work is not found: %s", out)
	}
	h.program("start", "exec "+exec0)
	for _, want := range []int{0, 76} { // a tick boundary between the two would run it twice
		cmd := exec.Command(h.file("start"))
		cmd.Env = []string{"LOCKRUN_BACKEND=" + h.backend, "HOME=" + h.dir, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want && code != 0 {
			t.Errorf("the service's command ended with %d, want %d: %s", code, want, out)
		}
	}
	if got := h.read(h.file("ran")); !strings.HasPrefix(got, "order-reconcile 20") {
		t.Errorf("it ran as %q", got)
	}
}

// TestCIJobs runs the scripts of the CI jobs as a runner would.
func TestCIJobs(t *testing.T) {
	t.Parallel()
	need(t, "bash")
	for file, find := range map[string]*regexp.Regexp{
		"examples/ci/github-actions.yml": regexp.MustCompile(`(?s)\n        run: \|\n(.*)$`),
		"examples/ci/gitlab-ci.yml":      regexp.MustCompile(`(?m)^    - (lockrun .*)$`),
	} {
		m := find.FindStringSubmatch(readRepo(t, file))
		if m == nil {
			t.Fatalf("%s has no script", file)
		}
		h := example(t)
		h.program("deploy.sh", "echo deployed >>deployed; sleep 0.2")
		runner := func(sha string) ([]byte, error) {
			cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", m[1])
			cmd.Dir = h.dir
			cmd.Env = []string{"PATH=" + binDir + ":" + os.Getenv("PATH"), "HOME=" + h.dir, "LOCKRUN_BACKEND=" + h.backend, "GORACE=atexit_sleep_ms=0",
				"GITHUB_SHA=" + sha, "CI_COMMIT_SHA=" + sha, "LOCKRUN_HOLDER=me/app#1"}
			return cmd.CombinedOutput()
		}
		var all sync.WaitGroup
		for _, sha := range []string{"a1", "b2", "a1"} { // two pushes, and one of them started again
			all.Go(func() {
				if out, err := runner(sha); err != nil {
					t.Errorf("%s: %v, %s", file, err, out)
				}
			})
		}
		all.Wait()
		if got := h.read(h.file("deployed")); got != "deployed\ndeployed\n" {
			t.Errorf("%s: %q for two commits, one of them twice", file, got)
		}
	}
}

func TestDeployExample(t *testing.T) {
	t.Parallel()
	h := example(t)
	steps := []string{"STEPS=" + h.dir}
	for _, s := range []string{"fetch", "migrate", "switch"} {
		h.program(s, `echo "${0##*/} $*" >>steps`)
	}
	out, err := h.sh("", steps, "deploy.sh", "v1")
	if err != nil || !strings.HasPrefix(out, "deployed v1 under token ") {
		t.Fatalf("%v: %s", err, out)
	}
	token := strings.TrimSpace(strings.TrimPrefix(out, "deployed v1 under token "))
	if got, want := h.read(h.file("steps")), fmt.Sprintf("fetch v1\nmigrate v1 %s\nswitch v1 %[1]s\n", token); got != want {
		t.Errorf("steps %q, want %q", got, want)
	}
	if h.status("deploy-production")["state"] != "free" {
		t.Errorf("it keeps the lease: %v", h.status("deploy-production"))
	}
	// A lease that is broken on the way is noticed before the next step that must not happen twice.
	h.program("migrate", `echo migrating >>steps; lockrun unlock deploy-production --force; lockrun acquire --key deploy-production --ttl 10m`)
	out, err = h.sh("", steps, "deploy.sh", "v2")
	if err == nil || !strings.Contains(out, "stopping before switch") || strings.Contains(h.read(h.file("steps")), "switch v2") || !strings.Contains(err.Error(), "79") {
		t.Errorf("%v: %s", err, out)
	}
	if h.status("deploy-production")["state"] != "held" {
		t.Error("it gave somebody else's lease back")
	}
	// A step that fails ends it, and gives the lease back.
	h.lockrun(0, "unlock", "deploy-production", "--force")
	h.program("fetch", "exit 9")
	if out, err = h.sh("", steps, "deploy.sh", "v3"); err == nil || !strings.Contains(err.Error(), " 9") || h.status("deploy-production")["state"] != "free" {
		t.Errorf("%v: %s, %v", err, out, h.status("deploy-production"))
	}
}

// TestSegmentsExample has two hosts work on sixteen segments, one of which fails at first.
func TestSegmentsExample(t *testing.T) {
	t.Parallel()
	h := example(t)
	work := h.program("work", `echo "$1 $LOCKRUN_SLOT" >>started
test "$1" != 7 || test -e repaired || exit 1
mkdir "running.$LOCKRUN_SLOT" || { echo "slot $LOCKRUN_SLOT twice" >>broken; exit 1; }
sleep 0.05
rmdir "running.$LOCKRUN_SLOT"
echo "$1" >>done`)
	env := []string{"DAY=2026-11-30", "SLOTS=10"}
	both := func() (failures int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := h.sh("", env, "segments.sh", work); err != nil {
					mu.Lock()
					failures++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return failures
	}
	if n := both(); n == 0 {
		t.Error("a segment failed, and neither host says so")
	}
	h.touch("repaired")
	if n := both(); n != 0 {
		t.Errorf("%d hosts failed when nothing was wrong any more", n)
	}
	done := strings.Fields(h.read(h.file("done")))
	slices.Sort(done)
	if len(done) != 16 || len(slices.Compact(done)) != 16 {
		t.Errorf("done are %q, want each of sixteen once", done)
	}
	if broken, err := os.ReadFile(h.file("broken")); err == nil {
		t.Errorf("%s", broken)
	}
	for _, line := range strings.Split(strings.TrimSpace(h.read(h.file("started"))), "\n") {
		if _, slot, _ := strings.Cut(line, " "); len(slot) != 1 {
			t.Errorf("ten slots, but %q", line)
		}
	}
}

func TestHandoffExample(t *testing.T) {
	t.Parallel()
	h := example(t)
	worker := filepath.Join(repo, "examples/handoff/worker.sh")
	h.program("submit", `test ! -e full || exit 1
WORK=`+h.file("work")+` EVERY=0.1 nohup `+worker+` "$@" >worker.log 2>&1 & echo $! >worker.pid`)
	h.program("work", `echo "$1 $2" >>worked; while ! test -e go; do sleep 0.02; done; echo end >>worked`)
	env := []string{"SUBMIT=" + h.file("submit"), "TTL=30s"}
	ask := func(order, want string) {
		t.Helper()
		if out, err := h.sh("", env, "handoff/handler.sh", order); err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
	ask("42", "202 ")
	h.await("the work begins", func() bool { _, err := os.Stat(h.file("worked")); return err == nil })
	ask("42", "409 ")
	before := h.status("order-42")
	h.await("the worker renews the lease", func() bool { return h.status("order-42")["expires_at"] != before["expires_at"] })
	ask("42", "409 ")
	if now := h.status("order-42"); now["acquired_at"] != before["acquired_at"] || now["state"] != "held" {
		t.Errorf("the lease did not last: %v, then %v", before, now)
	}
	h.touch("go")
	h.await("the worker gives the lease back", func() bool { return h.status("order-42")["state"] == "free" })
	if got := strings.Split(h.read(h.file("worked")), "\n"); len(got) != 3 || !strings.HasPrefix(got[0], "42 ") || got[1] != "end" {
		t.Errorf("worked %q", got)
	}
	// A lease that is broken stops the work; a queue that is full gives the lease back at once.
	if err := os.Remove(h.file("go")); err != nil {
		t.Fatal(err)
	}
	ask("43", "202 ")
	h.await("the work begins", func() bool { return strings.Contains(h.read(h.file("worked")), "43 ") })
	h.lockrun(0, "unlock", "order-43", "--force")
	h.await("the worker ends", func() bool {
		return exec.Command("kill", "-0", strings.TrimSpace(h.read(h.file("worker.pid")))).Run() != nil
	})
	if strings.Count(h.read(h.file("worked")), "end") != 1 {
		t.Error("the work went on without the lease")
	}
	h.touch("full")
	ask("44", "503 ")
	if s := h.status("order-44"); s["state"] != "free" {
		t.Errorf("%v", s)
	}
}

// TestDrillExample runs the fault drill: whatever it calls broken would be broken.
func TestDrillExample(t *testing.T) {
	t.Parallel()
	need(t, "bash", "socat")
	testserver.Need(t, "redis-server", "redis-cli")
	h := example(t)
	out, err := h.sh("", []string{"TTL=9s"}, "drill.sh")
	t.Log(out)
	if err != nil || strings.Contains(out, "BROKEN") || !strings.HasSuffix(out, "all as promised\n") || strings.Count(out, "as promised: ") < 15 {
		t.Errorf("%v", err)
	}
	if out, err := h.sh("", nil, "drill.sh", "nosuch"); err == nil || !strings.Contains(out, "there is no drill nosuch") {
		t.Errorf("%v: %s", err, out)
	}
	h.program("lockrun", `case " $* " in *" -- sh -c echo "*) shift $(($# - 1)); setsid sh -c "$1" & wait;; *) exec `+filepath.Join(binDir, "lockrun")+` "$@";; esac`)
	if out, err := h.sh("", []string{"TTL=3s"}, "drill.sh", "kill"); err == nil || !strings.Contains(out, "BROKEN") {
		t.Errorf("a lockrun that protects nothing passes the drill: %v\n%s", err, out)
	}
}
