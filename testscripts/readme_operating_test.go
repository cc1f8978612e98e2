package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// TestReadmeOperating goes from the first run to the first alert as README.md tells it: a hook that mails, and a Prometheus
// that is fed by "lockrun metrics" and configured as it is written there.
func TestReadmeOperating(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	testserver.Need(t, "prometheus", "promtool")
	r := newReadmeServer(t, "/usr/share/doc/lockrun/examples", filepath.Join(repo, "examples"), "127.0.0.1:9170", "127.0.0.1:0")
	mail := filepath.Join(r.dir, "mail")
	sendmail := filepath.Join(r.dir, "sendmail")
	write(t, sendmail, []byte("#!/bin/sh\ncat >"+mail+"\n"), 0o755)
	r.env = append(r.env, "SENDMAIL="+sendmail)
	r.run("shell operating")
	if text, err := os.ReadFile(mail); err != nil || !strings.Contains(string(text), "\nSubject: lockrun: nightly failed on ") {
		t.Errorf("the mail is %q, %v", text, err)
	}
	address := r.listen()
	r.instead = strings.NewReplacer("/usr/share/doc/lockrun/examples", filepath.Join(repo, "examples"), "127.0.0.1:9170", address)
	p := testserver.StartPrometheus(t, testserver.PrometheusConfig{Text: r.block("yaml", "rule_files")})
	for start := time.Now(); time.Since(start) < 2*patience; time.Sleep(100 * time.Millisecond) {
		if s, err := p.Query(`ALERTS{alertname="LockrunFailed",key="nightly"}`); err == nil && len(s) > 0 {
			break
		}
	}
	r.instead = strings.NewReplacer("/usr/share/doc/lockrun/examples", filepath.Join(repo, "examples"), "127.0.0.1:9090", p.Addr())
	text := r.block("shell alerts", "promtool ")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"alertname":"LockrunFailed","key":"nightly"`) {
		t.Errorf("%v from:\n%s\nwhich said:\n%s", err, text, out)
	}
}

// listen starts what README.md shows for it, and returns where that listens.
func (r *readmeServer) listen() string {
	r.t.Helper()
	said := filepath.Join(r.dir, "listen.log")
	log, err := os.Create(said)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", "exec "+r.block("shell listen", "lockrun "))
	cmd.Env, cmd.Stderr = append(r.env, "LOCKRUN_VERBOSE=true"), log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address := regexp.MustCompile(`http://([0-9.:]+)/metrics`)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(said); err == nil && address.Match(text) {
			return string(address.FindSubmatch(text)[1])
		}
	}
	r.t.Fatal("it does not listen")
	return ""
}

// TestReadmeTellsOfEveryAlert compares the table of README.md with the rules.
func TestReadmeTellsOfEveryAlert(t *testing.T) {
	told := map[string]bool{}
	for _, name := range regexp.MustCompile("`(Lockrun[A-Za-z]+)`").FindAllStringSubmatch(readRepo(t, "README.md"), -1) {
		told[name[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(readRepo(t, rulesFile), -1) {
		if !told[m[1]] {
			t.Errorf("README.md does not tell of %s", m[1])
		}
		delete(told, m[1])
	}
	for name := range told {
		t.Errorf("README.md tells of %s, which is no alert", name)
	}
}
