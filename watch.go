package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// life is that of a verb which goes on until somebody ends it: by a signal, or by closing what reads its stdout.
type life struct {
	c      *call
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   chan os.Signal
}

// endedBy is the signal that ended a verb.
type endedBy struct{ sig syscall.Signal }

func (e endedBy) Error() string { return e.sig.String() }

// untilStopped begins such a life. As with tail -f, its exit code is 128+N for signal N, that of SIGPIPE for a reader that
// is gone: it was not the verb that ended. Signals that were ignored stay so.
func (c *call) untilStopped() *life {
	l := &life{c: c, stop: make(chan os.Signal, 1)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(l.stop, s)
		}
	}
	go func() {
		select {
		case s := <-l.stop:
			l.cancel(endedBy{s.(syscall.Signal)})
		case <-l.ctx.Done():
		}
	}()
	go l.watchReader(fdOf(c.io.Out))
	return l
}

// watchReader ends the life when nobody can read stdout any more, also while there is nothing to be written.
func (l *life) watchReader(fd int) {
	for fd >= 0 && l.ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(fds, 500); err != nil && err != unix.EINTR {
			return
		} else if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			l.cancel(endedBy{unix.SIGPIPE})
		}
	}
}

func (l *life) close() {
	signal.Stop(l.stop)
	l.cancel(nil)
}

// failed is call.failed, where it was not the end of this life that made something fail.
func (l *life) failed(err error) int {
	if l.ctx.Err() != nil {
		return l.code(nil)
	}
	return l.c.failed(err)
}

// code is the exit code at the end: that of the signal, or 1 where stdout could not take what there was to tell.
func (l *life) code(p *page) int {
	var by endedBy
	if errors.As(context.Cause(l.ctx), &by) {
		return 128 + int(by.sig)
	}
	if p != nil {
		return p.close(codeOK)
	}
	return codeOK
}

// watch shows the status again and again: in place on a terminal, one table under the other elsewhere. A store that does
// not answer the first time ends it, later it is told and asked again.
func (c *call) watch() int {
	l := c.untilStopped()
	defer l.close()
	b, err := c.openWithin(l.ctx)
	if err != nil {
		return l.failed(err)
	}
	defer func() { _ = b.Close() }()
	w := &watcher{c: c, p: c.page(), b: b}
	if err := w.ask(l.ctx); err != nil {
		return l.failed(err)
	}
	redraw := w.begin()
	defer w.end()
	for l.ctx.Err() == nil && w.draw() {
		select {
		case <-l.ctx.Done():
			continue
		case s := <-redraw:
			w.signalled(l.ctx, s)
			continue
		case <-time.After(c.cfg.Interval):
		}
		if err := w.ask(l.ctx); err != nil && l.ctx.Err() == nil {
			w.failed(err)
		}
	}
	w.end()
	return l.code(w.p)
}

// watcher is a status that is shown again and again.
type watcher struct {
	c       *call
	p       *page
	b       backends.Backend
	full    bool // on the terminal's other screen
	signals chan os.Signal
	states  []backends.State
	clock   storeClock
	now     time.Time // of states, by the store
	trouble string    // why states are not of now; "" where they are
	drawn   int
}

func (w *watcher) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.c.cfg.BackendTimeout)
	defer cancel()
	states, err := w.b.Status(ctx, w.c.cfg.Keys...)
	if err == nil {
		w.states, w.trouble, w.now = states, "", w.clock.now(ctx, w.c, w.b, states)
	}
	return err
}

func (w *watcher) failed(err error) {
	if w.trouble != err.Error() && !w.full {
		w.c.ui.warn("no status, trying again: %v", err)
	}
	w.trouble = err.Error()
}

// Sequences of a terminal. The other screen keeps what the user had on his.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// begin takes the other screen of a terminal, and returns the signals that ask for a new picture.
func (w *watcher) begin() <-chan os.Signal {
	if w.c.cfg.JSON || w.c.screen().height == 0 || variable(w.c.io.Env, "TERM") == "dumb" {
		return nil
	}
	w.full, w.signals = true, make(chan os.Signal, 4)
	signal.Notify(w.signals, unix.SIGWINCH)
	if !signal.Ignored(unix.SIGTSTP) { // a shell without job control
		signal.Notify(w.signals, unix.SIGTSTP)
	}
	w.write(enterScreen)
	return w.signals
}

// end gives the terminal back. It may be repeated.
func (w *watcher) end() {
	if w.full {
		w.full = false
		signal.Stop(w.signals)
		w.write(leaveScreen)
	}
}

// signalled gives the terminal back for as long as lockrun is stopped by Ctrl-Z. The stop takes effect a moment after it is
// asked for, so what comes afterwards waits for CONT.
func (w *watcher) signalled(ctx context.Context, s os.Signal) {
	if s != unix.SIGTSTP {
		return
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, unix.SIGCONT)
	defer signal.Stop(again)
	w.write(leaveScreen)
	if unix.Kill(unix.Getpid(), unix.SIGSTOP) == nil {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
	}
	w.write(enterScreen)
}

func (w *watcher) write(s string) {
	_, _ = w.p.w.WriteString(s) // an error stays with the writer, and is told at the end
	_ = w.p.flush()
}

// draw shows the states, and tells whether stdout took them.
func (w *watcher) draw() bool {
	if w.full {
		w.write(w.picture(w.c.screen()))
		return w.p.err == nil
	}
	if w.trouble == "" {
		if !w.c.cfg.JSON {
			if w.drawn++; w.drawn > 1 {
				w.p.line("")
			}
			w.p.line(time.Now().UTC().Format(time.RFC3339))
		}
		w.c.tellStates(w.p, w.states, w.now)
	}
	return w.p.flush() == nil
}

// picture is what fills the screen: a heading, and as many rows as there is room for.
func (w *watcher) picture(s screen) string {
	t := statusTable(w.states, w.now)
	cols := t.layout(s.width)
	lines := []string{fit(fmt.Sprintf("lockrun status, every %s: %s", shortDuration(w.c.cfg.Interval), time.Now().UTC().Format(time.RFC3339)), s.width)}
	if w.trouble != "" {
		text := fit("not up to date: "+oneLine(w.trouble), s.width)
		if s.color {
			text = red.on(text)
		}
		lines = append(lines, text)
	}
	lines = append(lines, "", t.headText(cols, s))
	for i, r := range t.rows {
		if more := len(t.rows) - i; more > 1 && len(lines) >= s.height-1 {
			lines = append(lines, fit(fmt.Sprintf("... and %d more", more), s.width))
			break
		}
		lines = append(lines, t.rowText(r, cols, s))
	}
	lines = lines[:min(len(lines), s.height)]
	return home + strings.Join(lines, clearLine+"\n") + clearLine + clearBelow
}

// fit cuts a text to the width of a screen.
func fit(text string, width int) string {
	if r := []rune(text); width > 0 && len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}
