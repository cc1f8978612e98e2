package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
)

// Phases that make a difference to what is told. The driver does not tell a failed handshake from a failed login.
const (
	phaseLogin = "logging in"
	phaseTLS   = "TLS handshake or logging in"
)

// fault is an error with the phase in which it came.
type fault struct {
	phase     string
	err       error
	remedy    string
	permanent bool
}

func (f *fault) Error() string { return f.phase + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// inPhase says in which phase err came, unless it says so itself.
func inPhase(phase string, err error) error {
	var f *fault
	if errors.As(err, &f) {
		return err
	}
	return &fault{phase: phase, err: err}
}

// The server's error numbers that are told apart here.
const (
	errLockTimeout = 1205
	errDeadlock    = 1213 // and a Galera node whose COMMIT lost its certification
	errChanged     = 1020 // MariaDB: the row has changed since the transaction's snapshot
	errDuplicate   = 1062
	errUndone      = 3101 // group replication: COMMIT lost its certification
	errIdle        = 4031 // MySQL from 8.0.24, before it cuts a connection that idled: what was asked meanwhile is not carried out
	errNoVariable  = 1193
	errNoTable     = 1146
	errNoColumn    = 1054
)

// errRolledBack is a COMMIT that was called good and that changed nothing.
var errRolledBack = errors.New("the server rolled the transaction back and answered OK")

func mysqlCode(err error) int {
	var e *driver.MySQLError
	if errors.As(err, &e) {
		return int(e.Number)
	}
	return 0
}

// collided tells whether another transaction was in the way and the server has undone ours: it may be asked again at
// once. A duplicate key is such a collision too, where two Galera nodes write the same number.
func collided(err error) bool {
	if errors.Is(err, errRolledBack) {
		return true
	}
	switch mysqlCode(err) {
	case errDeadlock, errLockTimeout, errChanged, errDuplicate, errUndone:
		return true
	}
	return false
}

// broken tells whether the connection broke before the answer was complete.
func broken(err error) bool {
	return mysqlCode(err) == errIdle || errors.Is(err, driver.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn) ||
		backends.IsHangUp(err)
}

// fail makes the error that a caller gets: what was tried, on which server, in which phase, why, and what to do.
func (p *pool) fail(ctx context.Context, op string, err error) error {
	if end := backends.Ended(ctx); end != nil && !errors.Is(err, end) {
		err = errors.Join(err, end) // the driver may tell only that the connection is gone
	}
	f := &fault{phase: "asking", err: err}
	errors.As(err, &f)
	e := &backends.Error{Op: op, Backend: p.name}
	cause := p.explain(ctx, f, e)
	if f.remedy != "" {
		e.Remedy, e.Permanent = f.remedy, f.permanent
	}
	e.Err = backends.InWords(f.phase+": "+cause, err)
	return e
}

// explain gives the cause in words, and sets remedy and permanence where err tells them.
func (p *pool) explain(ctx context.Context, f *fault, e *backends.Error) string {
	err := f.err
	var server *driver.MySQLError
	switch {
	case errors.As(err, &server):
		p.explainServer(server, e)
		return fmt.Sprintf("%s (error %d)", server.Message, server.Number)
	case errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled):
		return "given up"
	case backends.Ended(ctx) != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		e.Remedy = "check that the server at " + p.server.host + " is up, not overloaded, and reachable through firewalls"
		return "no answer in time"
	case errors.Is(err, errClosed):
		e.Permanent = true
		return "the backend is closed"
	case broken(err) && f.phase == phaseTLS && len(p.server.config.TLS.Certificates) > 0: // which is how servers refuse one
		e.Remedy = "check that the server knows the authority of cert, that this is MySQL's port, and that the server is not restarting"
		return "the server closed the connection"
	case broken(err) && f.phase != "asking":
		e.Remedy = "check that this is MySQL's port, and that the server is not restarting"
		return "the server closed the connection"
	case broken(err):
		e.Remedy = "it may be restarting, or something between cuts connections"
		return "the server closed the connection"
	}
	return explainNetwork(f, e)
}

// explainNetwork is explain for what comes before the server is asked anything.
func explainNetwork(f *fault, e *backends.Error) string {
	err := f.err
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		e.Remedy = "check the name of the host"
		return dns.Name + ": " + dns.Err
	case errors.Is(err, driver.ErrNoTLS):
		e.Remedy, e.Permanent = "switch TLS on at the server, or leave tls, ca, cert, key and server_name out of the URL", true
		return "the server does not offer TLS"
	case errors.As(err, &certificate):
		e.Remedy, e.Permanent = certificateRemedy(certificate.Err), true
		return certificate.Err.Error()
	case errors.Is(err, driver.ErrMalformPkt), errors.Is(err, driver.ErrPktSync), errors.Is(err, driver.ErrPktSyncMul):
		e.Remedy = "check that this is MySQL's port"
		return "what answers does not speak MySQL's protocol"
	case errors.Is(err, driver.ErrCleartextPassword):
		e.Remedy, e.Permanent = "use tls=true, so that the password can be sent as the server wants it", true
		return "the server wants the password unencrypted"
	case errors.Is(err, driver.ErrUnknownPlugin), errors.Is(err, driver.ErrOldPassword), errors.Is(err, driver.ErrOldProtocol):
		e.Remedy, e.Permanent = "give the user a common way to log in, like mysql_native_password, caching_sha2_password or ed25519", true
	case f.phase == phaseTLS:
		e.Remedy, e.Permanent = "check ca, cert and key, and that this is MySQL's port", true
	case errors.As(err, &op):
		if e.Remedy == "" {
			e.Remedy = "check host and port, and that the server runs"
		}
		return op.Err.Error()
	}
	return err.Error()
}

func certificateRemedy(err error) string {
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &host):
		return "name in server_name what the certificate is for"
	case errors.As(err, &unknown):
		return "name the authority's certificate in ca, or in SSL_CERT_FILE"
	}
	return "renew the server's certificate"
}
