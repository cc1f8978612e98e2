package backends_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func TestOtherWordsKeepTheCauseOnOneLine(t *testing.T) {
	err := backends.InWords("the server\n said:\tno ", io.EOF)
	if err.Error() != "the server said: no" || !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", err, errors.Unwrap(err))
	}
}

func TestWhatAnErrorIs(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		err                             error
		positive, hungUp, isCertificate bool
	}{
		{nil, false, false, false},
		{io.ErrClosedPipe, false, false, false},
		{context.DeadlineExceeded, false, false, false},
		{&backends.Error{Op: "acquire", Err: io.EOF}, false, true, false},
		{fmt.Errorf("asking: %w", reset), false, true, false},
		{x509.HostnameError{}, false, false, true},
		{fmt.Errorf("TLS: %w", x509.UnknownAuthorityError{}), false, false, true},
		{&backends.HeldError{}, true, false, false},
		{&backends.DoneError{}, true, false, false},
		{&backends.UsageError{}, true, false, false},
		{fmt.Errorf("renew: %w", backends.ErrLost), true, false, false},
		{backends.ErrNotHeld, true, false, false},
	} {
		if p, h, x := backends.Positive(c.err), backends.IsHangUp(c.err), backends.IsCertificate(c.err); p != c.positive || h != c.hungUp || x != c.isCertificate {
			t.Errorf("%v: positive %v, hung up %v, certificate %v", c.err, p, h, x)
		}
	}
}

// A dialler gives up at the context's deadline, a moment before the context itself says so.
func TestAContextHasEndedAtItsDeadline(t *testing.T) {
	past := lateContext{context.Background(), time.Now().Add(-time.Millisecond)}
	if err := backends.Ended(past); err != context.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	past.at = time.Now().Add(time.Hour)
	if err := backends.Ended(past); err != nil {
		t.Errorf("%v before its deadline", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := backends.Ended(ctx); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// lateContext has a deadline that its timer does not know of.
type lateContext struct {
	context.Context
	at time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.at, true }
