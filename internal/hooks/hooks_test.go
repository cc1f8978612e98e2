//go:build unix

package hooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain is also the program that minds hooks.
func TestMain(m *testing.M) {
	if os.Args[0] == MinderName {
		os.Exit(MinderMain(func() {}))
	}
	os.Exit(m.Run())
}

// hook runs a command and returns what became of it, and what it printed.
func hook(t *testing.T, bound time.Duration, command, stdin string, env ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	h := Hook{Program: program, Command: command, Env: append([]string{"PATH=" + os.Getenv("PATH")}, env...), Stdin: []byte(stdin), Stderr: out}
	failed := h.Run(ctx)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failed
}

const ample = time.Minute

func TestWhatAHookGets(t *testing.T) {
	out, err := hook(t, ample, `cat; echo "$A,$LOCKRUN_HOOK_ORDERS"; echo err >&2`, `{"key":"k"}`, "A=1\n2")
	if err != nil || out != "{\"key\":\"k\"}\n1\n2,\nerr\n" {
		t.Errorf("it printed %q, %v", out, err)
	}
}

func TestHowAHookEnds(t *testing.T) {
	for command, want := range map[string]string{
		"exit 3": "it ended with 3", "kill -9 $$": "it ended with 137", "nosuchcommand": "it ended with 127", "true": "",
		"kill -9 $PPID; sleep 1000": "its minder was killed",
	} {
		_, err := hook(t, ample, command+" 2>/dev/null", "")
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

// A record that is larger than a pipe must not block anybody.
func TestALargeRecord(t *testing.T) {
	if _, err := hook(t, ample, "exit 0", strings.Repeat("x", 1<<20)); err != nil {
		t.Error(err)
	}
}

func TestAFloodIsCut(t *testing.T) {
	out, err := hook(t, ample, "head -c 1000000 /dev/zero", "")
	if len(out) != maxOutput || err == nil || err.Error() != "what it printed after 64 KB was dropped" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestAHookThatHangs(t *testing.T) {
	began := time.Now()
	_, err := hook(t, time.Second, `trap "" TERM INT HUP; while :; do sleep 1; done`, "")
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "its time was over") || took < 500*time.Millisecond || took > time.Minute {
		t.Errorf("after %v: %v", took, err)
	}
}

func TestABoundIsNeeded(t *testing.T) {
	h := Hook{Program: "/bin/true", Command: "true"}
	if err := h.Run(context.Background()); err == nil {
		t.Error("it ran without one")
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	h.Program = "/nonexistent/program"
	if err := h.Run(ctx); err == nil || strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("of a minder that is not there: %v", err)
	}
}

func TestSend(t *testing.T) {
	var asked atomic.Int32
	var status atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Error(w, "no such "+r.URL.Path, int(status.Load()))
	}))
	defer s.Close()
	for _, c := range []struct {
		status int
		bound  time.Duration
		again  bool
		want   string
	}{{200, ample, false, ""}, {204, ample, false, ""}, {404, ample, false, "404 Not Found"}, {400, ample, false, "400 Bad Request"},
		{503, 700 * time.Millisecond, true, "503 Service Unavailable"}, {429, 700 * time.Millisecond, true, "429 Too Many Requests"}} {
		asked.Store(0)
		status.Store(int32(c.status))
		ctx, cancel := context.WithTimeout(t.Context(), c.bound)
		r := Request{Method: "POST", URL: strings.Replace(s.URL, "://", "://user:hunter2@", 1) + "/hunter3?hunter4", Body: []byte("x")}
		err := r.Send(ctx)
		cancel()
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.Contains(got, c.want) || strings.Contains(got, "hunter") {
			t.Errorf("%d: %v", c.status, err)
		}
		if n := asked.Load(); c.again && n < 2 || !c.again && n != 1 {
			t.Errorf("%d: asked %d times", c.status, n)
		}
		if r.Explained = true; c.status == 404 {
			if err := r.Send(t.Context()); !strings.Contains(err.Error(), "(no such /hunter3)") {
				t.Errorf("what the server said is not told: %v", err)
			}
		}
	}
}

func TestNothingListens(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := Request{Method: "POST", URL: s.URL + "/hunter2"}
	if err := r.Send(ctx); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "refused") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestUnder(t *testing.T) {
	for _, c := range [][3]string{
		{"http://h/uuid", "/start", "http://h/uuid/start"}, {"http://h/uuid/", "/3", "http://h/uuid/3"}, {"http://h", "/log", "http://h/log"},
		{"http://h/uuid?create=1", "/fail", "http://h/uuid/fail?create=1"}, {"http://h/uuid?create=1", "", "http://h/uuid?create=1"},
		{"https://u:p@h:8/a%2Fb", "/x@base64/YQ", "https://u:p@h:8/a%2Fb/x@base64/YQ"},
	} {
		if got := Under(c[0], c[1]); got != c[2] {
			t.Errorf("%s under %s is %s, want %s", c[1], c[0], got, c[2])
		}
	}
}
