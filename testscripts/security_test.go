package testscripts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/lockrun/lockrun/internal/testserver"
)

// These tests attack: what they find is written down in docs/security.md.

// modest wants that the run has taken no more memory than a bounded answer explains, far below what hostile ones ask for. The
// race detector needs several times as much.
func (r *run) modest() {
	r.h.t.Helper()
	most := int64(1 << 20) // KB
	if raced() {
		most *= 4
	}
	if used := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; used > most {
		r.h.t.Errorf("%s took %d MB", r.name, used>>10)
	}
}

// impostor takes the place of a Redis server. It says yes to everything but scripts, which get the answer that is set.
type impostor struct {
	net.Listener
	answer  atomic.Pointer[string]
	endless atomic.Bool // the answer again and again
}

func newImpostor(t *testing.T) *impostor {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	i := &impostor{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go i.serve(c)
		}
	}()
	return i
}

func (i *impostor) set(answer string, endless bool) {
	i.endless.Store(endless)
	i.answer.Store(&answer)
}

// serve reads commands as arrays of strings.
func (i *impostor) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		if strings.HasPrefix(strings.ToUpper(words[0]), "EVAL") {
			answer = *i.answer.Load()
		}
		_, err = io.WriteString(c, answer)
		for err == nil && i.endless.Load() && answer != "+OK\r\n" {
			_, err = io.WriteString(c, answer)
		}
		if err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil || n < 1 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	for range n {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

// granting is how acquire.lua answers.
func granting(token, slot, attempt string) string {
	answer := "*8\r\n"
	for _, w := range []string{"granted", "1796000000000000", token, slot, attempt, "1796000000000000", "0", "L"} {
		answer += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return answer
}

// TestHostileRedis: whatever the server answers, it is not known who has the lease (69), and lockrun neither runs the job nor
// falls over, nor takes more memory than a run does.
func TestHostileRedis(t *testing.T) {
	t.Parallel()
	const nobody = "*3\r\n$4\r\nheld\r\n$16\r\n1796000000000000\r\n"
	i := newImpostor(t)
	h := newHost(t, "redis://"+i.Addr().String(), "").with("LOCKRUN_BACKEND_TIMEOUT=2s")
	for name, c := range map[string]struct {
		answer  string
		endless bool
	}{
		"a string longer than memory": {"$300000000000\r\n", false}, "a string longer than can be": {"$9223372036854775806\r\n", false},
		"an array longer than memory": {"*20000000000\r\n", false}, "an array longer than can be": {"*9223372036854775806\r\n", false},
		"a negative length": {"$-7\r\n", false}, "a map": {"%9999999999\r\n", false}, "arrays without end": {strings.Repeat("*1\r\n", 1000), true},
		"a line without end": {"+" + strings.Repeat("a", 1<<16), true}, "a number": {":1\r\n", false}, "a word": {"+OK\r\n", false},
		"a negative token": {granting("-5", "0", "1"), false}, "no token": {granting("0", "0", "1"), false},
		"a token above 2^53": {granting("9223372036854775807", "0", "1"), false}, "a word for a token": {granting("abc", "0", "1"), false},
		"a negative slot": {granting("5", "-3", "1"), false}, "a slot that there is not": {granting("5", "99", "1"), false},
		"a negative attempt": {granting("5", "0", "-1"), false},
		"held by nobody":     {nobody + "*0\r\n", false}, "held, and no list": {nobody + "$2\r\nxx\r\n", false},
		"held by half a row": {nobody + "*4\r\n$7\r\nlockrun\r\n$1\r\n1\r\n$2\r\ns0\r\n$5\r\naa 5 \r\n", false},
	} {
		h.sub(name, func(h *host) {
			i.set(c.answer, c.endless)
			h.lockrun(69, "--key", "k", "--", "touch", "started").says("lockrun: acquire on redis://").modest()
			if _, err := os.Stat(h.file("started")); err == nil {
				h.t.Error("the job was started")
			}
		})
	}
}

// TestServerTurnsHostile: in the middle of a run such answers are beats that fail. The job is stopped in time, and lockrun
// lives to tell.
func TestServerTurnsHostile(t *testing.T) {
	t.Parallel()
	i := newImpostor(t)
	i.set(granting("5", "0", "1"), false)
	h := newHost(t, "redis://"+i.Addr().String(), "")
	c := h.hold("k", 0, "--ttl", "10s", "--grace", "500ms")
	i.set("$9223372036854775806\r\n", false)
	c.wants(79)
	if last := c.last().Sub(c.started); last > 10*time.Second {
		t.Errorf("the job lived for %v under a lease of 10 s", last)
	}
}

// safe wants text that moves no terminal's cursor and begins no line that is not ours.
func safe(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%s has %U: %q", what, r, text)
			return
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "forged") {
			t.Errorf("%s has a forged line: %q", what, text)
		}
	}
}

// TestPoisonedNames: another host, which need not be a lockrun, has put names into the store that write into whatever shows
// them: lines of their own, escape sequences, the other direction.
func TestPoisonedNames(t *testing.T) {
	t.Parallel()
	s := testserver.StartRedis(t, testserver.RedisConfig{})
	h := newHost(t, s.URL(), "")
	c := h.hold("job", 0, "--ttl", outlast, "--heartbeat", "1s")
	name := leaseOf(s, "job")
	h.lockrun(0, "pause", "other", "--reason", "harmless")
	poison := func(field, old string) {
		text, _ := s.Must("HGET", name, field).(string)
		evil := strings.ReplaceAll(text, old, `x\u001b[2J\u001b]0;t\u0007\nforged: line\r\u009b31m\u202e\u007f`)
		if evil == text {
			t.Fatalf("%q is not in %q", old, text)
		}
		s.Must("HSET", name, field, evil)
	}
	text, _ := s.Must("HGET", name, "s0").(string)
	_, who, _ := strings.Cut(text, `"holder":"`)
	holder, _, _ := strings.Cut(who, `"`)
	poison("s0", holder)
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"status", "job"}, {"history"}, {"history", "--json"}, {"doctor"}, {"doctor", "--json"}} {
		r := h.start(args...)
		<-r.done
		safe(t, strings.Join(args, " "), r.stdout()+r.stderr())
	}
	for _, format := range []string{"text", "json"} {
		h.lockrun(75, "-v", "--log-format", format, "--key", "job", "--result-file", h.file("result"), "--", "true")
		r := h.lockrun(75, "-v", "--log-format", format, "--key", "job", "--wait", "100ms", "--", "true")
		if n := strings.Count(r.stderr(), "\n"); n != 2 || !strings.Contains(r.stderr(), "forged") {
			t.Errorf("%d lines instead of the two about waiting and skipping: %q", n, r.stderr())
		}
		safe(t, "a message as "+format, r.stderr())
		safe(t, "the result file", h.read(h.file("result")))
	}
	r := h.lockrun(0, "-v", "unlock", "--force", "job")
	safe(t, "unlock", r.stderr())
	c.wants(79)
	for _, args := range [][]string{{"history"}, {"history", "--json"}, {"metrics"}} {
		safe(t, args[0], h.lockrun(0, args...).stdout())
	}
}

// TestKeysAreData: no key, holder or run id becomes part of a shell's text, or a variable of its own.
func TestKeysAreData(t *testing.T) {
	t.Parallel()
	h := newHost(t, "sqlite://"+filepath.Join(t.TempDir(), "store.db"), "")
	hook := `printf %s "$LOCKRUN_KEY" >key; printf %s "$LOCKRUN_RUN_ID" >id; cat >record`
	for n, text := range []string{`$(touch pwned)`, "`touch pwned`", `'; touch pwned; '`, `"; touch pwned; "`, `| touch pwned`, `-e pwned`, `%s%n%d`, `&& touch pwned`} {
		key := text + "\nLOCKRUN_TOKEN=999\nLD_PRELOAD=x"
		h.lockrun(0, "--key="+key, "--run-id="+text, "--holder="+text, "--hook", "succeeded="+hook, "--", "sh", "-c",
			`test "$LOCKRUN_KEY" = "$1" && test "$LOCKRUN_RUN_ID" = "$2" && test "$LOCKRUN_TOKEN" != 999 && test -z "$LD_PRELOAD"`, "-", key, text)
		if got := h.read(h.file("key")); got != key {
			t.Errorf("%d: the hook was given the key %q, want %q", n, got, key)
		}
		if got := h.read(h.file("id")); got != text {
			t.Errorf("%d: the hook was given the run id %q, want %q", n, got, text)
		}
		if rec := h.read(h.file("record")); strings.Count(rec, "\n") != 1 {
			t.Errorf("%d: the record is not one line: %q", n, rec)
		}
		if _, err := os.Stat(h.file("pwned")); err == nil {
			t.Fatalf("%q was executed", text)
		}
	}
	if got := h.lockrun(1, "status", "gone"); got.stderr() != "" {
		t.Errorf("the store is damaged: %s", got.stderr())
	}
}

// TestSecretsInProc: a password that came in a variable is in no command line, and in the environment of nobody but those
// processes of lockrun that were given it.
func TestSecretsInProc(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-this-test"
	s := testserver.StartRedis(t, testserver.RedisConfig{Password: secret})
	h := newHost(t, s.URL(), secret).with("LOCKRUN_PUSHGATEWAY=http://u:" + secret + "@127.0.0.1:1/")
	c := h.hold("k", 0, "--hook-timeout", "5s", "--hook", "started=sleep 1000")
	h.await("the hook runs", func() bool {
		for _, pid := range family(t, c.cmd.Process.Pid) {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) == "sleep\x001000\x00" {
				return true
			}
		}
		return false
	})
	seen := 0
	for _, pid := range family(t, c.cmd.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(string(line), secret) {
			t.Errorf("it is in the command line %q", line)
		}
		if strings.Contains(string(env), secret) {
			seen++
			if pid != c.cmd.Process.Pid {
				t.Errorf("it is in the environment of %q", line)
			}
		}
	}
	if seen != 1 {
		t.Errorf("it was found in %d environments, and it is in lockrun's own", seen)
	}
	c.release().wants(0)
}

// family are a process and all below it.
func family(t *testing.T, pid int) []int {
	t.Helper()
	all, parents := []int{pid}, map[int]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		text, _ := os.ReadFile(d)
		var child, parent int
		if i := strings.LastIndex(string(text), ") "); i > 0 {
			_, _ = fmt.Sscan(string(text[:strings.IndexByte(string(text), ' ')]), &child)
			_, _ = fmt.Sscan(string(text[i+4:]), &parent)
			parents[child] = parent
		}
	}
	for i := 0; i < len(all); i++ {
		for child, parent := range parents {
			if parent == all[i] {
				all = append(all, child)
			}
		}
	}
	return all
}

// flood is an HTTP server whose answers do not end.
func flood(t *testing.T, head string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, head)
		for filler := strings.Repeat(`"aaaaaaaaaaaaaaaa",`, 4<<10); err == nil; {
			_, err = io.WriteString(w, filler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestAnswersWithoutEnd: of those who are told of a run, and of Firestore, so much is read and no more.
func TestAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	s := flood(t, `[{"found":[`)
	h := newHost(t, "sqlite://"+filepath.Join(t.TempDir(), "store.db"), "")
	h.lockrun(0, "--key", "k", "--ping", s.URL, "--pushgateway", s.URL, "--metrics-file", h.file("m.prom"), "--hook-timeout", "20s", "--", "true").modest()
	h = h.at("firestore://project/lockrun").with("FIRESTORE_EMULATOR_HOST="+strings.TrimPrefix(s.URL, "http://"), "LOCKRUN_BACKEND_TIMEOUT=8s")
	h.lockrun(69, "--key", "k", "--", "touch", "started").says("lockrun: acquire on firestore://").modest()
	if _, err := os.Stat(h.file("started")); err == nil {
		t.Error("the job was started")
	}
}

// TestFileModes: what lockrun makes is nobody's to write but whose folder it lies in, whatever the umask.
func TestFileModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]os.FileMode{ // of the folder, and of what is made in it
		0o700: 0o600, 0o755: 0o644, os.ModeSticky | 0o777: 0o600} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		h := newHost(t, "sqlite://"+filepath.Join(dir, "s.db"), "")
		cmd := exec.Command("sh", "-c", `umask 000; exec "$@"`, "-", filepath.Join(binDir, "lockrun"), "--key", "k", "--backend", h.backend,
			"--result-file", h.file("result"), "--metrics-file", h.file("sums.prom"), "--", "true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range []string{"s.db", "s.db-live", "s.db-wal", "s.db-shm"} {
			if fi, err := os.Stat(filepath.Join(dir, f)); err != nil || fi.Mode().Perm() != want {
				t.Errorf("in a folder with %v, %s has %v, want %v (%v)", mode, f, fi.Mode(), want, err)
			}
		}
		for _, f := range []string{"result", "sums.prom"} {
			if fi, err := os.Stat(h.file(f)); err != nil || fi.Mode().Perm()&^0o644 != 0 {
				t.Errorf("%s: %v, %v", f, fi, err)
			}
		}
	}
}
