package firestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var (
	errClosed       = errors.New("the backend is closed")
	errNotFirestore = errors.New("what answers is not Firestore's REST interface")
	errNoTime       = errors.New("the answer tells no time of the server")
)

// apiError is what the server said, as google.rpc.Status has it.
type apiError struct {
	Code    int
	Status  string // "ALREADY_EXISTS"
	Message string
	Details []struct {
		Reason   string            // "SERVICE_DISABLED"
		Metadata map[string]string // "consumer", "service"
	}

	skew time.Duration // how far the server's clock was from this host's, as far as its Date tells
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%s)", oneLine(e.Message), e.Status) }

// reason is the word that tells apart what shares a status.
func (e *apiError) reason() string {
	for _, d := range e.Details {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

// busy tells whether nothing is wrong with the request, and it may be sent again.
func (e *apiError) busy() bool {
	switch e.Status {
	case "ABORTED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "DEADLINE_EXCEEDED":
		return true
	}
	return e.Status == "" && e.Code >= 500
}

// newAPIError reads an answer other than 200. A proxy or a load balancer on the way may have written it, in HTML.
func newAPIError(resp *http.Response, text []byte, asked time.Time) error {
	var one struct{ Error *apiError }
	var list []struct{ Error *apiError }
	e := &apiError{Code: resp.StatusCode, Message: "HTTP status " + resp.Status}
	if json.Unmarshal(text, &one) == nil && one.Error != nil {
		e = one.Error
	} else if json.Unmarshal(text, &list) == nil && len(list) > 0 && list[0].Error != nil {
		e = list[0].Error
	} else if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("%w: HTTP status %s", errNotFirestore, resp.Status)
	} else if resp.StatusCode == http.StatusTooManyRequests {
		e.Status = "RESOURCE_EXHAUSTED"
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		e.skew = date.Sub(asked)
	}
	return e
}

// isConflict tells whether a commit was refused because a document was not as it was read: somebody was quicker, or the
// commit had been carried out before and its reply lost. Where it is about something else, the read that follows tells.
func isConflict(err error) bool {
	var e *apiError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Status {
	case "ALREADY_EXISTS", "FAILED_PRECONDITION", "NOT_FOUND", "ABORTED":
		return true
	}
	return false
}

// repeated is what the server said to a request that it may have carried out before, when its reply was lost.
type repeated struct{ error }

func (r *repeated) Unwrap() error { return r.error }

// isRepeated tells whether what a commit asks for may be there already by itself, however it was answered.
func isRepeated(err error) bool {
	var r *repeated
	return errors.As(err, &r)
}

// harmless tells whether an answer says for certain that nothing was done.
func (e *apiError) harmless() bool { return e.Status == "ABORTED" || e.Status == "UNAUTHENTICATED" }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// fail makes the error that a caller gets. A refusal that the store positively read passes as it is.
func (c *client) fail(ctx context.Context, op string, err error) error {
	var made *backends.Error
	if err == nil || backends.Positive(err) || errors.As(err, &made) {
		return err
	}
	if end := backends.Ended(ctx); end != nil && !errors.Is(err, end) {
		err = errors.Join(err, end)
	}
	e := &backends.Error{Op: op, Backend: c.name}
	text := c.explain(ctx, err, e)
	var p *phased
	if errors.As(err, &p) {
		text = p.phase + ": " + text
	}
	e.Err = backends.InWords(text, err)
	return e
}

// explain gives the cause in words, and sets remedy and permanence where err tells them.
func (c *client) explain(ctx context.Context, err error, e *backends.Error) string {
	var api *apiError
	var credentials *credentialsError
	switch {
	case errors.Is(err, errClosed):
		e.Permanent = true
	case errors.As(err, &api):
		e.Remedy, e.Permanent = c.advise(api)
		return api.Error()
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.As(err, &credentials):
		e.Remedy, e.Permanent = credentials.remedy, credentials.permanent
		if backends.Ended(ctx) != nil {
			e.Permanent = false
		}
	case errors.Is(err, errForeign):
		e.Remedy, e.Permanent = "name another collection in the URL, or another key", true
	case errors.Is(err, errCrowded):
		e.Remedy = "use fewer --slots, or several keys"
	case errors.Is(err, errNotFirestore), errors.Is(err, errNoTime):
		e.Remedy = "check endpoint and FIRESTORE_EMULATOR_HOST, and proxies on the way"
	case backends.Ended(ctx) != nil:
		e.Remedy = "check that this host reaches " + c.endpoint.Host + " through firewalls and proxies"
		return c.endpoint.Host + ": no answer in time"
	default:
		return c.explainNetwork(err, e)
	}
	return err.Error()
}

// explainNetwork is explain for what comes before the server is asked anything.
func (c *client) explainNetwork(err error, e *backends.Error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var op *net.OpError
	var u *url.Error
	host := c.endpoint.Host
	switch {
	case errors.As(err, &dns):
		e.Remedy = "check the network of this host, and the name in endpoint"
		return dns.Name + ": " + dns.Err
	case errors.As(err, &certificate):
		e.Remedy, e.Permanent = "look at what answers for "+host+" (a proxy that inspects TLS?)", true
		if errors.As(certificate.Err, &unknown) {
			e.Remedy = "name the authority's certificate in SSL_CERT_FILE, if a proxy on the way inspects TLS"
		}
		return host + ": " + certificate.Err.Error()
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.Remedy, e.Permanent = "an emulator is named by FIRESTORE_EMULATOR_HOST or emulator=HOST:PORT, not by endpoint", true
		return host + " does not speak TLS"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Remedy = "check that something listens at " + host
		return host + ": connection refused"
	case backends.IsHangUp(err):
		e.Remedy = "something between cuts connections, or " + host + " is restarting"
		return host + " closed the connection"
	case errors.As(err, &op):
		e.Remedy = "check the network of this host"
		return host + ": " + op.Err.Error()
	case errors.As(err, &u):
		return host + ": " + u.Err.Error()
	}
	return err.Error()
}
