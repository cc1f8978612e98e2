package firestore

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// client speaks the REST interface of one database. It connects at the first call, under that call's context.
type client struct {
	*config
	http   *http.Client
	tokens tokens
	closed atomic.Bool
}

// answerLimit bounds an answer: a page of a query is far below it.
const answerLimit = 64 << 20

// tries and the pauses between them bound what is asked again inside one operation. Whoever called asks again as well,
// while the backend timeout lasts.
const (
	tries      = 6
	firstPause = 20 * time.Millisecond
	mostPause  = 600 * time.Millisecond
)

func newClient(c *config) *client {
	t := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2: true,
		// Those of a history over many keys.
		MaxIdleConnsPerHost: queriesAtOnce,
		IdleConnTimeout:     4 * time.Minute, // Google's front end cuts after that
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		// A connection that HTTP/2 shares goes on being used when requests on it end without an answer.
		HTTP2: &http.HTTP2Config{SendPingTimeout: c.timeout, PingTimeout: c.timeout / 2},
	}
	h := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cl := &client{config: c, http: h}
	cl.tokens = newTokens(c, h)
	return cl
}

func (c *client) close() {
	c.closed.Store(true)
	c.http.CloseIdleConnections()
}

// call asks once, and again while the server says that it is busy, or where a connection that had idled was cut.
//
//	an answer                                      done
//	ABORTED, UNAVAILABLE, RESOURCE_EXHAUSTED, 5xx  again, after a jittered pause
//	a connection that had idled is gone            again, at once and once
//	UNAUTHENTICATED with a token used before       again with a new token, once
//	anything else                                  the error, for the caller to judge; isRepeated tells what of it
func (c *client) call(ctx context.Context, path string, body, into any) error {
	if c.closed.Load() {
		return errClosed
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	pause, cut, renewed, doubtful := firstPause, false, false, false
	for try := 1; ; try++ {
		reused, err := c.once(ctx, path, text, into)
		if err != nil && doubtful {
			err = &repeated{err}
		}
		var api *apiError
		switch {
		case err == nil || ctx.Err() != nil || try == tries:
			return err
		case errors.As(err, &api) && api.Status == "UNAUTHENTICATED" && !renewed && c.tokens.forget():
			renewed = true
		case errors.As(err, &api) && api.busy():
			if !backends.Sleep(ctx, pause/2+rand.N(pause/2)) {
				return err
			}
			pause = min(2*pause, mostPause)
		case api == nil && reused && !cut:
			cut = true
		default:
			return err
		}
		doubtful = doubtful || api == nil || !api.harmless()
	}
}

// once sends one request. It tells whether that went over a connection which had been used before.
func (c *client) once(ctx context.Context, path string, body []byte, into any) (reused bool, err error) {
	token, err := c.tokens.token(ctx)
	if err != nil {
		return false, err
	}
	w := &watch{phase: "connecting"}
	ctx = httptrace.WithClientTrace(ctx, w.trace())
	target := url.URL{Scheme: c.endpoint.Scheme, Host: c.endpoint.Host, Path: "/v1/" + path}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "lockrun")
	if project := c.tokens.quotaProject(); project != "" {
		req.Header.Set("X-Goog-User-Project", project)
	}
	asked := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return w.shared(), c.broken(ctx, w, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	switch {
	case err != nil:
		return w.shared(), c.broken(ctx, w, err)
	case resp.StatusCode != http.StatusOK:
		return w.shared(), newAPIError(resp, text, asked)
	}
	return w.shared(), decode(text, into)
}

// broken is a request that got no answer. Where that took too long, its connection may be dead, although nothing says so:
// the next request gets another one.
func (c *client) broken(ctx context.Context, w *watch, err error) error {
	if errors.Is(backends.Ended(ctx), context.DeadlineExceeded) {
		c.http.CloseIdleConnections()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return &phased{w.phase, err}
}

// watch looks how far a request gets. The transport may still dial when the request has ended.
type watch struct {
	mu     sync.Mutex
	phase  string
	reused bool
}

func (w *watch) set(phase string, reused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase, w.reused = phase, reused
}

// shared tells whether the request went over a connection that had been used before.
func (w *watch) shared() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reused
}

func (w *watch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart:          func(httptrace.DNSStartInfo) { w.set("looking up the host", false) },
		ConnectStart:      func(string, string) { w.set("connecting", false) },
		TLSHandshakeStart: func() { w.set("TLS handshake", false) },
		GotConn:           func(i httptrace.GotConnInfo) { w.set("asking", i.Reused) },
	}
}

// phased is an error with the phase in which it came.
type phased struct {
	phase string
	err   error
}

func (p *phased) Error() string { return p.phase + ": " + p.err.Error() }
func (p *phased) Unwrap() error { return p.err }

// decode reads an answer. A list can break off with an error as its last element.
func decode(text []byte, into any) error {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) && bytes.Contains(text, []byte(`"error"`)) {
		var parts []struct{ Error *apiError }
		if json.Unmarshal(text, &parts) == nil {
			for _, p := range parts {
				if p.Error != nil {
					return p.Error
				}
			}
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errNotFirestore
	}
	return nil
}

// bound sees to it that an operation ends.
func (c *client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}
