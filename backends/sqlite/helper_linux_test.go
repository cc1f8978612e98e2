package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// patience bounds what is waited for; it is only ever waited in full by a test that fails.
const patience = 30 * time.Second

// helperVar turns the test binary into one of the helpers below, so that what is tested between processes is tested
// between processes.
const helperVar = "LOCKRUN_SQLITE_HELPER"

func TestMain(m *testing.M) {
	if verb := os.Getenv(helperVar); verb != "" {
		syscall.Umask(0o077) // the least friendly one
		if err := helpers[verb](os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var helpers = map[string]func(driver, path, key string, args []string) error{
	"once": helpOnce, "hold": helpHold, "ask": helpAsk, "count": helpCount, "status": helpStatus, "doctor": helpDoctor,
}

func helperOpen(driver, path string, o backends.Options) (backends.Backend, error) {
	for _, d := range drivers() {
		if d.name == driver {
			return open(context.Background(), urlOf(path), o, d, hostClock)
		}
	}
	return nil, errors.New("no driver " + driver)
}

func helperRequest(key string, ttl time.Duration) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "helper", Host: "same", PID: os.Getpid(), TTL: ttl, Slots: 1, Last: true}
}

// helpOnce is one run, let go when its standard input ends: "ran", "skipped", or an error. A run lasts until the file
// args[0], if there is an argument, exists.
func helpOnce(driver, path, key string, args []string) error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	b, err := helperOpen(driver, path, backends.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := b.Acquire(ctx, helperRequest(key, time.Hour))
	var held *backends.HeldError
	if errors.As(err, &held) {
		fmt.Println("skipped")
		return b.Close()
	}
	if err != nil {
		return err
	}
	for len(args) > 0 && !exists(args[0]) {
		time.Sleep(5 * time.Millisecond)
	}
	if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); err != nil {
		return err
	}
	fmt.Println("ran")
	return b.Close()
}

// helpHold holds the key until its standard input ends, then goes without a release.
func helpHold(driver, path, key string, args []string) error {
	ttl, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	b, err := helperOpen(driver, path, backends.Options{})
	if err != nil {
		return err
	}
	r := helperRequest(key, ttl)
	r.Detached = len(args) > 1 && args[1] == "detached"
	l, err := b.Acquire(context.Background(), r)
	if err != nil {
		return err
	}
	var guard *exec.Cmd
	if len(args) > 1 && args[1] == "guard" {
		guard = exec.Command("cat") // lives until its input, a pipe of the test's, ends
		guard.Stdin = os.Stdin
		guard.ExtraFiles = l.(backends.Liveness).Files()
		if err := guard.Start(); err != nil {
			return err
		}
	}
	fmt.Println("held", l.Grant().Token, os.Getpid())
	if guard != nil {
		time.Sleep(patience) // until it is killed: the guard reads the input
		return errors.New("nobody killed the holder")
	}
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// helpAsk asks for status and history again and again.
func helpAsk(driver, path, key string, _ []string) error {
	fmt.Println("ready")
	over := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(over) }()
	for {
		b, err := helperOpen(driver, path, backends.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		if _, err := b.Status(context.Background()); err != nil {
			return err
		}
		if _, err := b.History(context.Background(), backends.Query{}); err != nil {
			return err
		}
		b.Close()
		select {
		case <-over:
			fmt.Println("ran")
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// helpCount adds args[1] to the number in the file args[0], one at a time under the lease.
func helpCount(driver, path, key string, args []string) error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	b, err := helperOpen(driver, path, backends.Options{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for range n {
		l, err := helperWait(b, key)
		if err != nil {
			return err
		}
		if err := addOne(args[0], l.Grant().Token); err != nil {
			return err
		}
		if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != nil {
			return err
		}
	}
	fmt.Println("ran")
	return b.Close()
}

func helperWait(b backends.Backend, key string) (backends.Lease, error) {
	for {
		r := helperRequest(key, time.Hour)
		r.Last = false
		l, err := b.Acquire(context.Background(), r)
		var held *backends.HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		if err := b.(backends.Waiter).Wait(context.Background(), r); err != nil {
			return nil, err
		}
	}
}

// addOne reads number and token, yields, and writes them back, greater.
func addOne(file string, token int64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var n, last int64
	if _, err := fmt.Sscan(string(text), &n, &last); err != nil {
		return err
	}
	if token <= last {
		return fmt.Errorf("token %d after %d", token, last)
	}
	syscall.Select(0, nil, nil, nil, &syscall.Timeval{Usec: 500})
	return os.WriteFile(file, fmt.Appendln(nil, n+1, token), 0o600)
}

// helpStatus tells the state of a key as a reader.
func helpStatus(driver, path, key string, _ []string) error {
	b, err := helperOpen(driver, path, backends.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	all, err := b.Status(context.Background(), key)
	if err != nil {
		return err
	}
	h, err := b.History(context.Background(), backends.Query{Key: key})
	if err != nil {
		return err
	}
	fmt.Println(all[0].State, len(h))
	return nil
}

// proc is a running helper.
type proc struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

// start starts a helper with the driver of s.
func (s *store) start(verb, key string, args ...string) *proc {
	s.t.Helper()
	return s.startAs(nil, "", verb, key, args...)
}

func (s *store) startAs(cred *syscall.Credential, exe, verb, key string, args ...string) *proc {
	s.t.Helper()
	if exe == "" {
		exe = selfPath(s.t)
	}
	cmd := exec.Command(exe, append([]string{s.d.name, s.path, key}, args...)...)
	cmd.Env = append(os.Environ(), helperVar+"="+verb)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Stderr = os.Stderr
	return startCmd(s.t, cmd)
}

func startCmd(t testing.TB, cmd *exec.Cmd) *proc {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	return p
}

func selfPath(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// line is the helper's next line; "" at its end.
func (p *proc) line() string {
	p.out.Scan()
	return p.out.Text()
}

func (p *proc) want(prefix string) string {
	p.t.Helper()
	line := p.line()
	if !strings.HasPrefix(line, prefix) {
		p.t.Fatalf("the helper says %q, want %q", line, prefix)
	}
	return line
}

func (p *proc) kill() {
	p.t.Helper()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// release ends the standard input of all helpers once they are ready, and gives the next line of each as it comes.
func release(t *testing.T, all []*proc) <-chan string {
	t.Helper()
	for _, p := range all {
		p.want("ready")
	}
	lines := make(chan string, len(all))
	for _, p := range all {
		p.in.Close()
		go func() { lines <- p.line() }()
	}
	return lines
}

// letGo counts the lines that release gives.
func letGo(t *testing.T, all []*proc) map[string]int {
	t.Helper()
	lines, results := release(t, all), map[string]int{}
	for range all {
		results[next(t, lines)]++
	}
	return results
}

// next is the next line of any helper.
func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(2 * patience): // the helpers themselves give up before
		t.Fatal("a helper says nothing")
		return ""
	}
}

// eventually looks until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}
