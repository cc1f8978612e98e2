package backends

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"
)

// What every driver, and whoever composes drivers, asks of an error.

// Positive tells whether err is something that a store, or a check before it was asked, positively said. All other errors
// but nil mean that the answer is not known.
func Positive(err error) bool {
	var held *HeldError
	var done *DoneError
	var usage *UsageError
	return errors.As(err, &held) || errors.As(err, &done) || errors.As(err, &usage) || errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld)
}

// InWords is err in one line of other words, for people; errors.Is and errors.As still find what is behind them.
func InWords(text string, err error) error {
	return &reworded{strings.Join(strings.Fields(text), " "), err}
}

type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }

// IsHangUp tells whether the other side ended the connection.
func IsHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsCertificate tells whether the other side's certificate was refused by us.
func IsCertificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verify) || errors.As(err, &host) || errors.As(err, &unknown) || errors.As(err, &invalid)
}

// Ended is ctx.Err, also in the moment between a dialler's time-out at ctx's deadline and ctx's own.
func Ended(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
