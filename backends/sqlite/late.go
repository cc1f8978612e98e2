package sqlite

import (
	"fmt"
	"sync/atomic"
	"time"
)

// late is an operation whose context ended before there was an answer. "Context deadline exceeded" would tell nobody what
// to do, so it says what stood in the way.
type late struct {
	why, remedy string
	err         error // the context's
}

func (e *late) Error() string { return e.why }
func (e *late) Unwrap() error { return e.err }

// What an operation may wait for, each followed by for how long.
const (
	waitsForLock    = "another process has had the database locked for"
	waitsForCreator = "another process has been creating the database for"
	waitsForTurn    = "an earlier exchange of this process has not ended for"
	waitsForDisk    = "the file system has not answered for"
)

// hindrance is what an operation is waiting for just now. It is told by the goroutine that carries the operation out, and
// read by the one that gives up on it, which cannot wait for the other's last word: it may never come.
type hindrance struct{ met atomic.Pointer[wait] }

type wait struct {
	what  string
	since time.Time
}

// is notes what is waited for from now on, unless that is what was waited for before.
func (h *hindrance) is(what string) {
	if h == nil {
		return
	}
	if w := h.met.Load(); w == nil || w.what != what {
		h.met.Store(&wait{what, time.Now()})
	}
}

// gaveUp makes the error of an operation that ends with its context's err.
func (b *backend) gaveUp(err error, h *hindrance) error {
	var w *wait
	if h != nil {
		w = h.met.Load()
	}
	if w == nil {
		return &late{why: "the time for it was over before it began", err: err}
	}
	e := &late{why: fmt.Sprintf("%s %v", w.what, time.Since(w.since).Round(10*time.Millisecond)), err: err}
	switch w.what {
	case waitsForDisk:
		e.remedy = "see the kernel's log for the disk"
	default:
		e.remedy = "fuser -v " + b.path + " tells which processes have it open"
	}
	return e
}
