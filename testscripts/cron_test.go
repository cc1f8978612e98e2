package testscripts

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inCron is what runs in a mount namespace of its own: a cron that sees only our crontab, and our /usr/local/bin and
// /var/lib, so that the example is executed as it stands.
const inCron = `set -e
mount --bind "$P/spool" /var/spool/cron
mount --bind "$P/empty.d" /etc/cron.d
mount --bind "$P/empty" /etc/crontab
mount --bind "$P/bin" /usr/local/bin
mount --bind "$P/lib" /var/lib
mount -t tmpfs tmpfs /run
exec cron -f -L 15`

// TestCrontabExample runs examples/crontab under a real cron: two lines, one tick, one run.
func TestCrontabExample(t *testing.T) {
	t.Parallel()
	need(t, "root", "unshare", "cron")
	p := t.TempDir()
	layCron(t, p)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "bash", "-c", inCron)
	cmd.Env = append(os.Environ(), "P="+p, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said, err := os.Create(filepath.Join(p, "cron.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() }()

	seen := outcomes(t, filepath.Join(p, "lib/lockrun/lockrun.db"), 2)
	if seen["succeeded"] != 1 || seen["skipped"]+seen["done"] != 1 {
		t.Errorf("outcomes of one tick: %v, want one success and one skipped or done", seen)
	}
	ran, err := os.ReadFile(filepath.Join(p, "ran"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(ran, []byte("\n")); n != 1 {
		t.Errorf("the job ran %d times in one tick:\n%s", n, ran)
	}
	if !strings.Contains(string(ran), "order-reconcile 20") {
		t.Errorf("the job was not told its key and tick: %q", ran)
	}
}

// layCron makes the folders that cron sees.
func layCron(t *testing.T, p string) {
	for _, d := range []string{"spool/crontabs", "empty.d", "bin", "lib"} {
		if err := os.MkdirAll(filepath.Join(p, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	crontab, err := os.ReadFile("../examples/crontab")
	if err != nil {
		t.Fatal(err)
	}
	job := "#!/bin/sh\necho \"$LOCKRUN_KEY $LOCKRUN_RUN_ID\" >>" + p + "/ran\nsleep 1\n"
	write(t, filepath.Join(p, "spool/crontabs/root"), crontab, 0o600)
	write(t, filepath.Join(p, "empty"), nil, 0o644)
	write(t, filepath.Join(p, "bin/order-reconcile"), []byte(job), 0o755)
	program, err := os.ReadFile(filepath.Join(binDir, "lockrun"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p, "bin/lockrun"), program, 0o755)
}

func write(t *testing.T, name string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
}

// outcomes waits until the store tells of n runs, and counts how they ended. cron fires once a minute.
func outcomes(t *testing.T, db string, n int) map[string]int {
	t.Helper()
	for start := time.Now(); time.Since(start) < 3*time.Minute; time.Sleep(200 * time.Millisecond) {
		if _, err := os.Stat(db); err != nil {
			continue
		}
		cmd := exec.Command(filepath.Join(binDir, "lockrun"), "history", "--json", "--backend", "sqlite://"+db)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("history: %v, %s", err, out)
		}
		if seen := count(t, out); total(seen) >= n {
			return seen
		}
	}
	said, _ := os.ReadFile(filepath.Join(filepath.Dir(db), "../../cron.log"))
	t.Fatalf("cron did not run both lines within three minutes; it said: %s", said)
	return nil
}

// count counts the outcomes of run records.
func count(t *testing.T, lines []byte) map[string]int {
	seen := map[string]int{}
	for d := json.NewDecoder(bytes.NewReader(lines)); ; {
		var r struct{ Outcome string }
		err := d.Decode(&r)
		if err == io.EOF {
			return seen
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[r.Outcome]++
	}
}

func total(m map[string]int) (sum int) {
	for _, n := range m {
		sum += n
	}
	return sum
}
