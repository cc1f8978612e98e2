package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// What is found in the store that cannot be.
var (
	errNotInitialised = errors.New("the chroot has not been set up")
	errForeign        = errors.New("what stands under this key was not written by lockrun")
	errNewer          = errors.New("what stands under this key was written by a newer lockrun")
	errShortened      = errors.New("the session was shortened")
)

// keyFault is why one key cannot be read, whatever may be known of others.
type keyFault struct {
	key string
	err error
}

func (f *keyFault) Error() string {
	return strconv.Quote(f.key) + ": " + strings.TrimPrefix(f.err.Error(), "zk: ")
}
func (f *keyFault) Unwrap() error { return f.err }

// ofKey names the key in an error that is about what stands under it, or about its rights. Others are about the servers.
func ofKey(key string, err error) error {
	if errors.Is(err, errForeign) || errors.Is(err, errNewer) || errors.Is(err, zk.ErrNoAuth) {
		return &keyFault{key, err}
	}
	return err
}

// isKeyFault tells an error of one key.
func isKeyFault(err error) bool {
	var f *keyFault
	return errors.As(err, &f)
}

// fail makes the error that a caller gets: what was tried, on which servers, why it failed and what to do. What the store
// has answered positively passes as it is.
func (b *backend) fail(ctx context.Context, op string, err error) error {
	var known *backends.Error
	if errors.As(err, &known) {
		return err
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = errors.Join(err, end)
	}
	remedy, permanent := b.advise(err)
	return &backends.Error{Op: op, Backend: b.Name(), Err: backends.InWords(explain(err), err), Remedy: remedy, Permanent: permanent}
}

// explain is the cause in words.
func explain(err error) string {
	var f *fault
	switch {
	case errors.As(err, &f):
		return f.phase + ": " + explainFault(f.err)
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return strings.TrimPrefix(err.Error(), "zk: ")
}

func explainFault(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, errNoAnswer):
		return errNoAnswer.Error()
	case errors.As(err, &dns):
		return dns.Name + ": " + dns.Err
	case errors.As(err, &op):
		return op.Err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

const upRemedy = "check that the servers are up, that most of them see each other, and that firewalls let this host through"

// advise is what to do about an error, and whether asking again would give the same answer.
func (b *backend) advise(err error) (remedy string, permanent bool) {
	switch {
	case errors.Is(err, errClosed):
		return "", true
	case errors.Is(err, context.Canceled):
		return "", false
	case errors.Is(err, errNotInitialised):
		return "run lockrun init against this backend", true
	case errors.Is(err, errForeign):
		return "another program uses this name: choose another key or another chroot", true
	case errors.Is(err, errShortened):
		return "give all servers the same tickTime and maxSessionTimeout", false
	case errors.Is(err, errNewer):
		return "update lockrun on this host", true
	case errors.Is(err, zk.ErrNoAuth) && b.c.user == "":
		return "the nodes are closed to others: name the user, and its password in a password_file", true
	case errors.Is(err, zk.ErrAuthFailed): // which is not how servers take a wrong password: nobody owns nodes under it
		return "these servers take no user and password (digest authentication): allow it there, or leave the user out", true
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL):
		return notOursRemedy(err), true
	}
	return b.adviseConnection(err)
}

// notOursRemedy is advice on nodes that are closed to the user of the URL.
func notOursRemedy(err error) string {
	if isKeyFault(err) {
		return "check user and password: the key's nodes belong to whoever made them, so all hosts have to use the same credentials"
	}
	return "check user and password: the nodes belong to whoever ran lockrun init"
}

// adviseConnection is advice about failures to get an answer at all.
func (b *backend) adviseConnection(err error) (string, bool) {
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.As(err, &record):
		return "there is no TLS on that port: leave tls out, or name the servers' secureClientPort", true
	case backends.IsCertificate(err):
		return "check ca and server_name of the URL, and the server's certificate", true
	case strings.Contains(err.Error(), "tls:"):
		return "check cert and key of the URL, and the server's TLS settings", true
	case errors.As(err, &dns):
		return "check the host's name", dns.IsNotFound
	case errors.Is(err, errNoSession) && b.c.tls == nil:
		return "it may have lost its quorum, be full (maxClientCnxns), or want TLS (tls=true)", false
	case errors.Is(err, errNoSession):
		return "it may have lost its quorum, be full (maxClientCnxns), or want a client certificate (cert and key)", false
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check host and port, and that the server runs", false
	case errors.Is(err, errNoAnswer), errors.Is(err, errOverdue), errors.Is(err, context.DeadlineExceeded), isBroken(err):
		return upRemedy, false
	case b.c.tls != nil && backends.IsHangUp(err): // before there was a connection
		return "name the servers' secureClientPort, or leave tls out where there is no TLS on that port", false
	}
	return "see lockrun doctor", false
}
