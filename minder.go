package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/supervise"
)

// orders are what a minder is told at its start.
type orders struct {
	Config *Config
	Script pidWatch
}

// minderAnswer is what it answers: the exit code of lockrun acquire, and the token where that is 0.
type minderAnswer struct {
	Code  int
	Token int64
}

// wantedLine follows the orders once the token is printed.
const wantedLine = "kept\n"

// startMinder has a background process take and keep the lease, and prints the token.
func startMinder(c *call) int {
	script, err := watchPID(c.cfg.WhilePID)
	if err != nil {
		c.ui.err("--while-pid %d: %v", c.cfg.WhilePID, err)
		return c.cfg.exit(codeUsage)
	}
	signals, err := supervise.Listen()
	if err != nil {
		c.ui.err("%v", err)
		return c.cfg.exit(codeInternal)
	}
	orderPipe, answers, err := forkMinder(c, script)
	script.close()
	if err != nil {
		c.ui.err("the background process cannot be started: %v", err)
		return c.cfg.exit(codeInternal)
	}
	defer orderPipe.Close()
	got := make(chan minderAnswer, 1)
	go func() {
		a := minderAnswer{Code: -1}
		_ = json.NewDecoder(answers).Decode(&a) // one that died answers nothing, which leaves -1
		got <- a
	}()
	for {
		select {
		case a := <-got:
			return takeAnswer(c, a, orderPipe)
		case s := <-signals.C():
			if ends(s) {
				orderPipe.Close()
				awaitEnd(got)
				return 128 + int(s.(syscall.Signal))
			}
		}
	}
}

// awaitEnd gives a minder that is not wanted any more the time that any acquire under way gets.
func awaitEnd(got <-chan minderAnswer) {
	select {
	case <-got:
	case <-time.After(interruptBound):
	}
}

// takeAnswer prints the token, and only then has the minder keep the lease.
func takeAnswer(c *call, a minderAnswer, orderPipe *os.File) int {
	if a.Code == -1 {
		c.ui.err("the background process ended without an answer")
		return c.cfg.exit(codeInternal)
	}
	if a.Code != codeOK || a.Token == 0 {
		return a.Code // it has said why
	}
	code := c.printToken(a.Token)
	if code == codeOK {
		if _, err := orderPipe.WriteString(wantedLine); err != nil {
			c.ui.err("the background process ended early: %v", pathCause(err))
			return c.cfg.exit(codeInternal)
		}
	}
	return code
}

// forkMinder starts the background process and gives it its orders.
func forkMinder(c *call, script pidWatch) (orderPipe, answers *os.File, err error) {
	orderRead, orderPipe, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer orderRead.Close()
	answers, answerWrite, err := os.Pipe()
	if err != nil {
		orderPipe.Close()
		return nil, nil, err
	}
	defer answerWrite.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		keepToOurselves()
		var p *os.Process
		p, err = os.StartProcess(ownProgram(), []string{minderName, c.cfg.Key}, &os.ProcAttr{
			Env: c.io.Env, Sys: &syscall.SysProcAttr{Setsid: true},
			Files: script.files([]*os.File{null, null, c.io.Err, orderRead, answerWrite}),
		})
		if err == nil {
			_ = p.Release() // it is to outlive us
			err = json.NewEncoder(orderPipe).Encode(orders{Config: c.cfg, Script: script})
		}
	}
	if err != nil {
		orderPipe.Close()
		answers.Close()
	}
	return orderPipe, answers, err
}

// keepToOurselves sees to it that the minder gets no descriptor that the script happens to have open: a lock file or a
// pipe would be held by the background process, unseen, for as long as it lives.
func keepToOurselves() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // a system without it; the script's descriptors are then passed on, as by any other program
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// ownProgram is this program, also where its file has been replaced since the start.
func ownProgram() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Descriptors that a minder is started with, after the standard ones.
const (
	fdOrders = 3
	fdAnswer = 4
	fdScript = 5
)

// minderMain is main of the background process.
func minderMain(std IO, open opener) int {
	m := &minder{orders: os.NewFile(fdOrders, "orders"), answer: os.NewFile(fdAnswer, "answer")}
	o, rest, err := readOrders(m.orders)
	if err != nil {
		fmt.Fprintf(std.Err, "lockrun: %s is started by lockrun acquire, and by nobody else\n", minderName)
		return codeUsage
	}
	// Descriptors are not to reach anything that is started from here.
	syscall.CloseOnExec(fdOrders)
	syscall.CloseOnExec(fdAnswer)
	m.script = o.Script.inherited(fdScript)
	nameProcess(minderName)
	_ = os.Chdir("/") // a background process keeps no file system busy
	u := newUI(o.Config, std.Err)
	o.Config.warn = func(text string) { u.warn("%s", text) }
	if m.r, err = newRunner(o.Config, std, u, open); err != nil {
		u.err("%v", err)
		return codeInternal
	}
	m.r.req.Detached, m.r.req.Loose = true, true
	m.rest = rest
	return m.mind()
}

// nameProcess makes top, pgrep and killall show what this is, rather than "exe", by which it was executed. The file names
// the process whichever of its threads writes; prctl(2) would name one thread. Systems without it go by the arguments.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

func readOrders(f *os.File) (o orders, rest *bufio.Reader, err error) {
	rest = bufio.NewReader(f)
	line, err := rest.ReadBytes('\n')
	if err != nil {
		return o, nil, err
	}
	if err = json.Unmarshal(line, &o); err == nil && o.Config == nil {
		err = errors.New("no configuration")
	}
	return o, rest, err
}

// awaitOrder waits for the word that the token was printed, or for the end of whoever asked.
func (m *minder) awaitOrder(kept chan<- struct{}, unwanted func()) {
	line, err := m.rest.ReadString('\n')
	if err == nil && line == wantedLine {
		close(kept)
		return
	}
	unwanted()
}

// tell answers lockrun acquire, after everything that is to be read before its end.
func (m *minder) tell(code int, token int64) int {
	m.r.ui.flush()
	_ = json.NewEncoder(m.answer).Encode(minderAnswer{Code: code, Token: token}) // nobody there: awaitOrder sees it too
	_ = m.answer.Close()
	return code
}

// silence lets go of stderr: whoever reads the script's would otherwise wait for the minder's end.
func silence() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	_ = unix.Dup2(int(null.Fd()), 2)
}
