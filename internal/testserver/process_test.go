package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFrozenServerAcceptsAndIsSilent(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	r.Freeze()
	c, err := dialRESP(r.Addr(), nil)
	if err != nil {
		t.Fatalf("a frozen server does not take connections: %v", err)
	}
	defer c.Close()
	send(t, c, "PING")
	silent(t, c)
	if !r.Running() {
		t.Error("a frozen server counts as ended")
	}
	r.Thaw()
	c.SetDeadline(time.Now().Add(patience))
	if v, err := c.reply(); v != "PONG" || err != nil {
		t.Errorf("thawed: %v, %v", v, err)
	}
}

func TestStopLetsTheServerEndAlsoWhenFrozen(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	r.Freeze()
	r.Stop()
	if r.Running() || !strings.Contains(r.Log(), "bye bye") {
		t.Errorf("running %v; its log: %s", r.Running(), r.Log())
	}
	r.Stop()
	r.Restart()
	r.Must("PING")
}

// asHelper makes this test binary start servers and tell their pids, until it is killed.
const asHelper = "LOCKRUN_TESTSERVER_HELPER"

func TestServersDieWithTheTestProcess(t *testing.T) {
	if os.Getenv(asHelper) != "" {
		r, m := StartRedis(t, RedisConfig{}), StartMariaDB(t, MariaDBConfig{})
		r.Freeze()
		fmt.Printf("pids %d %d %s\n", r.PID(), m.PID(), filepath.Dir(r.dir))
		select {}
	}
	Need(t, "redis-server", "mariadbd", "mariadb-install-db")
	dir := outlived(t)
	// What it left on disk is taken away by a later process, once it is certain that nobody is just making it.
	sweep()
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("a young folder was swept: %v", err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	sweep()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a killed process is still there: %v", err)
	}
}

// MySQL runs as root where this process does, by an option that could have taken away what makes it die.
func TestMySQLDiesWithTheTestProcess(t *testing.T) {
	if os.Getenv(asHelper) != "" {
		m := StartMySQL(t, MySQL57, MariaDBConfig{})
		fmt.Printf("pids %d %d %s\n", m.PID(), m.PID(), filepath.Dir(m.dir))
		select {}
	}
	fetchedMySQL(t, MySQL57)
	os.RemoveAll(outlived(t))
}

// outlived runs the test that calls it as a helper, kills it when it has told two pids and a folder, and waits for the
// processes to end. It returns the folder.
func outlived(t *testing.T) (dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asHelper+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var one, other int
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "pids %d %d %s", &one, &other, &dir); n == 3 {
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if one == 0 || other == 0 {
		t.Fatal("the helper started no servers")
	}
	for _, pid := range []int{one, other} {
		await(t, fmt.Sprintf("process %d ending", pid), func() error { return gone(pid) })
	}
	return dir
}

// gone returns nil when a process has ended, be it that nobody has reaped it yet.
func gone(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return nil
	}
	return fmt.Errorf("it is there: %s", stat)
}

func TestFoldersInUseAreNotSwept(t *testing.T) {
	dir := newFolder(t, "mine")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Dir(dir), old, old); err != nil {
		t.Fatal(err)
	}
	sweep()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("sweeping took the folder of a living process: %v", err)
	}
}

func TestAnotherPortWhenSomebodyWasQuicker(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	second := &Redis{dir: newFolder(t, "redis")}
	tries := 0
	second.Process = launch(t, func() (spec, error) {
		s, err := second.choose("redis-server", second.args)
		if tries++; tries == 1 {
			second.port = r.port
			s.argv = append([]string{find("redis-server")}, second.args()...)
		}
		return s, err
	})
	if tries < 2 || second.Addr() == r.Addr() {
		t.Errorf("%d tries, addresses %s and %s", tries, r.Addr(), second.Addr())
	}
	second.Must("PING")
}

func TestRestartWaitsForItsOwnAddress(t *testing.T) {
	r := StartRedis(t, RedisConfig{})
	r.Kill()
	squatter, err := net.Listen("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		poll(func() error {
			if !strings.Contains(strings.ToLower(r.Log()), errInUse.Error()) {
				return errors.New("not tried yet")
			}
			return nil
		})
		squatter.Close()
	}()
	r.Restart()
	if r.Must("PING") != "PONG" {
		t.Error("no answer after a restart")
	}
}

// recorder is a TB that remembers what was said, for what has to end a test.
type recorder struct {
	TB
	said  string
	ended string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", format, args) }

func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", format, args) }

func (r *recorder) end(how, format string, args []any) {
	r.ended, r.said = how, fmt.Sprintf(format, args...)
	panic(r)
}

// try calls f with a recorder and returns how it ended.
func try(t *testing.T, f func(TB)) (r *recorder) {
	r = &recorder{TB: t}
	defer func() {
		if v := recover(); v != nil && v != any(r) {
			panic(v)
		}
	}()
	f(r)
	return r
}

func TestNeed(t *testing.T) {
	find := func(required string, programs ...string) *recorder {
		t.Setenv("LOCKRUN_TEST_REQUIRE", required)
		return try(t, func(tb TB) { Need(tb, programs...) })
	}
	if testing.Short() {
		if r := find("redis-server", "sh"); r.ended != "skipped" {
			t.Errorf("under -short: %q", r.ended)
		}
		return
	}
	if r := find("root,nosuch", "sh"); r.ended != "" {
		t.Errorf("a program that is there: %s", r.said)
	}
	if r := find("root", "nosuch"); r.ended != "skipped" || !strings.Contains(r.said, "nosuch is missing") {
		t.Errorf("missing: %s, %s", r.ended, r.said)
	}
	if r := find("root,nosuch", "nosuch"); r.ended != "failed" || !strings.Contains(r.said, "LOCKRUN_TEST_REQUIRE") {
		t.Errorf("missing and required: %s, %s", r.ended, r.said)
	}
}

func TestServerThatCannotStartShowsItsLog(t *testing.T) {
	Need(t, "redis-server")
	r := try(t, func(tb TB) { StartRedis(tb, RedisConfig{Args: []string{"--no-such-option", "1"}}) })
	if r.ended != "failed" || !strings.Contains(r.said, "no-such-option") {
		t.Errorf("%s: %s", r.ended, r.said)
	}
}

func TestFreezeTellsOfAProcessThatIsGone(t *testing.T) {
	s := StartRedis(t, RedisConfig{})
	syscall.Kill(s.PID(), syscall.SIGKILL)
	<-s.ended
	r := try(t, func(tb TB) {
		s.Process.t = tb
		s.Freeze()
	})
	s.Process.t = t
	if r.ended != "failed" || !strings.Contains(r.said, "not running") {
		t.Errorf("%s: %s", r.ended, r.said)
	}
}
