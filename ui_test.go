package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// heard is what a voice with this configuration writes into a file.
func heard(t *testing.T, cfg *Config, speak func(*ui)) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	u := newUI(cfg, f)
	speak(u)
	u.flush()
	return contents(t, f)
}

func everything(u *ui) {
	u.err("e %d", 1)
	u.warn("w")
	u.notice("n")
	u.info("i")
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		cfg  *Config
		want string
	}{
		{nil, "lockrun: e 1\nlockrun: warning: w\n"},
		{&Config{Quiet: true}, "lockrun: e 1\n"},
		{&Config{Verbose: true}, "lockrun: e 1\nlockrun: warning: w\nlockrun: n\nlockrun: i\n"},
	} {
		if got := heard(t, c.cfg, everything); got != c.want {
			t.Errorf("%+v: %q", c.cfg, got)
		}
	}
}

func TestNoticesAreForATerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	defer slave.Close()
	u := newUI(nil, slave)
	everything(u)
	u.flush()
	var got []string
	for in := bufio.NewScanner(master); len(got) < 3 && in.Scan(); {
		got = append(got, in.Text())
	}
	if strings.Join(got, "|") != "lockrun: e 1|lockrun: warning: w|lockrun: n" {
		t.Errorf("got %q", got)
	}
}

func TestJSONLines(t *testing.T) {
	got := heard(t, &Config{LogFormat: "json", Verbose: true, Key: "k\n"}, func(u *ui) {
		everything(u)
		u.err("two\nlines")
	})
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	want := [][2]string{{"error", "e 1"}, {"warning", "w"}, {"notice", "n"}, {"info", "i"}, {"error", "two\nlines"}}
	if len(lines) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i, l := range lines {
		var s map[string]string
		if err := json.Unmarshal([]byte(l), &s); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		if _, err := time.Parse(time.RFC3339Nano, s["time"]); err != nil || s["level"] != want[i][0] || s["msg"] != want[i][1] || s["key"] != "k\n" {
			t.Errorf("got %s", l)
		}
	}
}

func TestJSONAlsoBeforeTheCommandLineIsUnderstood(t *testing.T) {
	for _, c := range []struct {
		argv []string
		env  string
		json bool
	}{
		{[]string{"--nonsense"}, "LOCKRUN_LOG_FORMAT=json", true},
		{[]string{"--log-format", "json", "--nonsense"}, "", true},
		{[]string{"--nonsense", "--log-format=json"}, "", true},
		{[]string{"--nonsense", "--", "--log-format=json"}, "", false},
		{[]string{"--log-format=text", "--nonsense"}, "LOCKRUN_LOG_FORMAT=json", false},
	} {
		got := invoke(t, untouched(t), []string{c.env}, c.argv...)
		if got.code != codeUsage || strings.HasPrefix(got.err, "{") != c.json {
			t.Errorf("%q: %+v", c.argv, got)
		}
	}
}

func TestWordsOfOthersCannotBeginALine(t *testing.T) {
	evil := "x\nlockrun: all is well\r\x1b[2J\u2028\u202e\xff\x00 ключ"
	got := heard(t, nil, func(u *ui) { u.err("held by %s", evil) })
	if want := "lockrun: held by x\\nlockrun: all is well\\r\\x1b[2J\\u2028\\u202e\\xff\\x00 ключ\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSilenceStartsNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	u := newUI(nil, os.Stderr)
	u.info("nobody asked")
	u.flush()
	if runtime.NumGoroutine() != before || u.ready.Load() {
		t.Error("a goroutine was started for nothing")
	}
}

// A reader that is gone: nothing is written, and nobody dies. It takes a process of its own, since the signal would end
// this one, and stderr proper, since only 1 and 2 are dangerous.
func TestReaderThatIsGone(t *testing.T) {
	for _, how := range []string{"2>&1 | true", "2>&-", "2>/dev/full"} {
		cmd := exec.Command("sh", "-c", `{ "$0" status --nonsense; echo $? >code; } `+how, os.Args[0])
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "LOCKRUN_TEST_MAIN=1")
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if code, err := os.ReadFile(filepath.Join(cmd.Dir, "code")); err != nil || string(code) != "64\n" {
			t.Errorf("%s: ended with %q, %v", how, code, err)
		}
	}
}

// A pipe that nobody empties: speaking goes on at once, and the flush gives up soon.
func TestReaderThatIsStuck(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u := newUI(nil, w)
	start := time.Now()
	for range 20_000 {
		u.err("%s", strings.Repeat("x", 100))
	}
	spoken := time.Since(start)
	u.flush()
	if took := time.Since(start); spoken > 5*time.Second || took > 10*time.Second {
		t.Errorf("speaking took %v, with the flush %v", spoken, took)
	}
	// Once somebody reads, what was kept arrives in whole lines.
	line := "lockrun: " + strings.Repeat("x", 100)
	in := bufio.NewScanner(r)
	for range uiQueue {
		if !in.Scan() || in.Text() != line {
			t.Fatalf("got %q, %v", in.Text(), in.Err())
		}
	}
}

// Stderr is often one open file with the job's stdout, and a job may have made it non-blocking.
func TestNonBlockingStderrLosesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u := newUI(nil, w)
	if err := unix.SetNonblock(u.fd, true); err != nil {
		t.Fatal(err)
	}
	const lines = 200
	long := strings.Repeat("y", 1000) // more than a pipe holds in all
	for range lines {
		u.err("%s", long)
	}
	got := make(chan int)
	go func() {
		n := 0
		for in := bufio.NewScanner(r); n < lines && in.Scan(); n++ {
		}
		got <- n
	}()
	select {
	case n := <-got:
		if n != lines {
			t.Errorf("%d lines arrived", n)
		}
	case <-time.After(30 * time.Second):
		t.Error("the lines did not arrive")
	}
}

// What a terminal obeys is escaped in JSON as well, and means the same to whoever reads it.
func TestPlainJSON(t *testing.T) {
	for _, text := range []string{"plain", "\x1b[2J\r\n\t\x00\x7f", "\u0085\u009b31m", "a\u202eb\u200b\ufeff", "\U000e0041", "jöb \u00a0 ключ 😀"} {
		b, err := plainJSON(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range string(b) {
			if r < ' ' || r == 0x7f || unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Errorf("%q has %U", b, r)
			}
		}
		var back map[string]string
		if err := json.Unmarshal(b, &back); err != nil || back["text"] != text {
			t.Errorf("%q became %q, %v", text, back["text"], err)
		}
	}
}
