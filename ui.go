package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// ui is the program's voice. It speaks on stderr only, in lines that begin with "lockrun: ", in lower case, without a
// full stop, one line a message; an error's line says what was tried, where, why it failed and what to do about it.
//
// It is quiet: cron mails whatever a job prints, so a run that went well, a skip and a done say nothing unless a person
// is looking (a terminal) or asked (--verbose).
//
// Saying something never delays or kills lockrun. Lines go through a bounded queue to one writer, which is started by
// the first message, so that a silent run pays for nothing; where the queue is full because nobody reads stderr, the
// line is dropped. All methods are safe for concurrent use.
type ui struct {
	file    *os.File // kept, because a file that nobody refers to is closed
	fd      int      // -1 where there is nowhere to write
	json    bool
	quiet   bool // errors only
	verbose bool
	tty     bool
	key     string // goes into each JSON object

	once  sync.Once
	ready atomic.Bool // the writer runs
	lines chan string
	idle  chan chan struct{} // flush requests
}

const (
	uiQueue = 256                    // lines that may wait for a slow reader
	uiFlush = 250 * time.Millisecond // how long an exit waits for a reader that does not read
)

// newUI returns the voice of one invocation, writing to f, which is not closed and may be broken or nobody's. A nil cfg
// gives the defaults, for what has to be said before there is a configuration.
func newUI(cfg *Config, f *os.File) *ui {
	if cfg == nil {
		cfg = &Config{}
	}
	u := &ui{json: cfg.LogFormat == "json", quiet: cfg.Quiet, verbose: cfg.Verbose, key: cfg.Key, file: f, fd: fdOf(f)}
	u.tty = u.fd >= 0 && isatty.IsTerminal(uintptr(u.fd))
	return u
}

// fdOf is the file's descriptor, -1 where it has none. File.Fd would switch a descriptor that others share to blocking
// mode.
func fdOf(f *os.File) int {
	n := -1
	if f == nil {
		return n
	}
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { n = int(fd) })
	}
	return n
}

// err says why lockrun did not do what it was asked for. It is told even with --quiet.
func (u *ui) err(format string, a ...any) { u.say("error", format, a...) }

// warn says what went wrong without changing the outcome; --quiet silences it.
func (u *ui) warn(format string, a ...any) {
	if !u.quiet {
		u.say("warning", format, a...)
	}
}

// notice says what a person at a terminal wants to know and a crontab does not: a skip, a done.
func (u *ui) notice(format string, a ...any) {
	if u.watched() {
		u.say("notice", format, a...)
	}
}

// watched tells whether notices are told, for what costs something to find out.
func (u *ui) watched() bool { return u.verbose || u.tty && !u.quiet }

// info is told with --verbose only.
func (u *ui) info(format string, a ...any) {
	if u.verbose {
		u.say("info", format, a...)
	}
}

// said is one line of --log-format json.
type said struct {
	Time  string `json:"time"`
	Level string `json:"level"`
	Key   string `json:"key,omitempty"`
	Msg   string `json:"msg"`
}

func (u *ui) say(level, format string, a ...any) {
	if u.fd < 0 {
		return
	}
	text := fmt.Sprintf(format, a...)
	line := "lockrun: " + oneLine(text)
	switch {
	case u.json:
		b, err := plainJSON(said{Time: time.Now().UTC().Format(time.RFC3339Nano), Level: level, Key: u.key, Msg: text})
		if err != nil {
			return
		}
		line = string(b)
	case level == "warning":
		line = "lockrun: warning: " + oneLine(text)
	}
	u.once.Do(u.start)
	select {
	case u.lines <- line + "\n":
	default: // nobody reads: the message is worth less than the job
	}
}

func (u *ui) start() {
	u.lines = make(chan string, uiQueue)
	u.idle = make(chan chan struct{}, 1)
	go u.write()
	u.ready.Store(true)
}

func (u *ui) write() {
	for {
		select {
		case l := <-u.lines:
			_ = writeRaw(u.fd, l) // nobody is left to be told
		case done := <-u.idle:
			for len(u.lines) > 0 {
				_ = writeRaw(u.fd, <-u.lines)
			}
			close(done)
		}
	}
}

// flush waits until everything said so far is written, or 250 ms have passed because nobody reads it. It is free where
// nothing was said.
func (u *ui) flush() {
	if !u.ready.Load() {
		return
	}
	done, limit := make(chan struct{}), time.NewTimer(uiFlush)
	defer limit.Stop()
	select {
	case u.idle <- done:
	case <-limit.C:
		return
	}
	select {
	case <-done:
	case <-limit.C:
	}
}

// writeRaw writes by write(2): os.File.Write would raise SIGPIPE on descriptors 1 and 2 when the reader is gone, which
// ends a Go program. A descriptor that its other users made non-blocking is waited for; any other error ends it, with what
// was written until then.
func writeRaw(fd int, s string) error {
	for b := []byte(s); len(b) > 0; {
		n, err := syscall.Write(fd, b)
		switch err {
		case nil:
			b = b[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// oneLine makes text safe to print: whatever a holder, a reason or a server put into it can neither begin a line of its
// own nor move a terminal's cursor. Everything that is not printable is written as Go would quote it.
func oneLine(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteString(s[i : i+n])
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

// plainJSON is one line of JSON that is safe to print. encoding/json escapes line breaks and the ASCII control characters; of
// the rest that a terminal obeys, or shows as something else (DEL, U+009B, which begins a sequence as ESC [ does, and what
// turns the direction of writing), it escapes none.
func plainJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || clean(string(b)) {
		return b, err
	}
	out := make([]byte, 0, len(b)+16)
	for _, r := range string(b) {
		if r == 0x7f || r > 0x7f && unicode.In(r, unicode.Cc, unicode.Cf) {
			for _, u := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, u)
			}
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out, nil
}

func clean(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
