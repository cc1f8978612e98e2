package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Request is something to be told over HTTP. The URL is never shown: its user, path and query may be passwords.
type Request struct {
	Method string
	URL    string
	Type   string // of the body
	Body   []byte

	Explained bool // what the server says about a refusal may be shown; it may repeat the URL
}

// Bounds of the pauses between two attempts.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 2 * time.Second
)

// Send sends it, again where nobody answers or the server says that it cannot now, until it is taken or ctx ends. What
// has an effect at the other end may so happen twice; pings and pushes may. The error is one line and names the server
// only.
func (r *Request) Send(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	var last error
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		again, err := r.once(ctx, client)
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, errNoAnswer) { // a try that was cut short says less than the one before
			last = err
		}
		if !again || !sleep(ctx, pause) {
			return fmt.Errorf("%s: %w", r.server(), last)
		}
	}
}

// once is one attempt. It may take half of the time that is left: a connection that leads nowhere must leave time for
// another.
func (r *Request) once(ctx context.Context, client *http.Client) (again bool, err error) {
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(time.Until(until)/2, 50*time.Millisecond))
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return false, errors.New("the URL cannot be used")
	}
	req.Header.Set("Content-Type", r.Type)
	req.Header.Set("User-Agent", "lockrun")
	answer, err := client.Do(req)
	if err != nil {
		return true, cause(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10)) // only to say more
	if answer.StatusCode/100 == 2 {
		return false, nil
	}
	err = errors.New("it answered " + answer.Status)
	if line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n"); r.Explained && line != "" && len(line) < 200 {
		err = fmt.Errorf("it answered %s (%s)", answer.Status, line)
	}
	return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests, err
}

// cause takes the URL out of an error.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errNoAnswer
	}
	return err
}

var errNoAnswer = errors.New("no answer in time")

// server is the part of the URL that may be shown.
func (r *Request) server() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return "the URL"
	}
	return u.Scheme + "://" + u.Host
}

// sleep waits for d and tells whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Under puts a path behind that of a URL, in front of its query.
func Under(base, path string) string {
	u, err := url.Parse(base)
	if err != nil || path == "" {
		return base
	}
	joined := strings.TrimRight(u.EscapedPath(), "/") + path
	if u.Path, err = url.PathUnescape(joined); err != nil {
		return base
	}
	u.RawPath = joined
	return u.String()
}
