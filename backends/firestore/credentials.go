package firestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/lockrun/lockrun/backends"
)

// scope is the narrowest that Firestore knows.
const scope = "https://www.googleapis.com/auth/datastore"

// audience is whom a token that a service account signs by itself is for, whatever way leads there.
const audience = "https://firestore.googleapis.com/"

// tokens gives access tokens. All methods are safe for concurrent use.
type tokens interface {
	// token returns one that is good for some time yet. It returns soon after ctx has ended.
	token(ctx context.Context) (string, error)
	// forget drops the token that was used so far and tells whether another may be had: false where it was a new one.
	forget() bool
	quotaProject() string
	// who describes the credentials for a person, without a secret.
	who(ctx context.Context) (string, error)
}

// credentialsError is a failure to get a token.
type credentialsError struct {
	what      string
	err       error
	remedy    string
	permanent bool
}

func (e *credentialsError) Error() string { return e.what + ": " + e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

func newTokens(c *config, h *http.Client) tokens {
	if c.emulator {
		return emulator{}
	}
	// Google's library sends some of its requests under no context.
	return &account{c: c, http: &http.Client{Transport: h.Transport, Timeout: c.timeout}, asking: make(chan struct{}, 1)}
}

// emulator wants a token, whichever. "owner" is the one that its security rules do not apply to.
type emulator struct{}

func (emulator) token(context.Context) (string, error) { return "owner", nil }
func (emulator) forget() bool                          { return false }
func (emulator) quotaProject() string                  { return "" }
func (emulator) who(context.Context) (string, error) {
	return "an emulator is asked, which needs none", nil
}

// account is one of Google's kinds of credentials, found at the first use.
type account struct {
	c      *config
	http   *http.Client
	asking chan struct{} // held by the one that asks for a token

	mu     sync.Mutex // guards what follows; never held through an exchange
	found  *found
	last   *oauth2.Token
	proven bool // last has been used for an answer, or at least for a second request
}

// found is where the credentials are.
type found struct {
	what   string // for people: "service account x@y (/path)"
	quota  string
	source source
}

// source fetches a new token. It may need the network.
type source func(ctx context.Context) (*oauth2.Token, error)

// early is how long before its end a token is replaced.
const early = 225 * time.Second

func (a *account) token(ctx context.Context) (string, error) {
	if t := a.current(); t != "" {
		return t, nil
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if t := a.current(); t != "" { // somebody else has asked meanwhile
		return t, nil
	}
	f, err := a.where()
	if err != nil {
		return "", err
	}
	t, err := waitFor(ctx, func() (*oauth2.Token, error) { return f.source(ctx) })
	if err != nil {
		return "", f.failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.proven = t, false
	return t.AccessToken, nil
}

// current is the token that was got before, "" where it is over or nearly so.
func (a *account) current() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil || !a.last.Expiry.IsZero() && time.Until(a.last.Expiry) < early {
		return ""
	}
	a.proven = true
	return a.last.AccessToken
}

// where finds the credentials, once.
func (a *account) where() (*found, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found != nil {
		return a.found, nil
	}
	f, err := a.find()
	if err == nil {
		a.found = f
	}
	return f, err
}

// waitFor does not wait for f longer than ctx lasts: Google's library asks under no context of ours.
func waitFor[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (a *account) forget() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.proven
	a.last, a.proven = nil, false
	return was
}

func (a *account) quotaProject() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.c.quota == "" && a.found != nil {
		return a.found.quota
	}
	return a.c.quota
}

// failed says what stood in the way of a token, without what the request for it held.
func (f *found) failed(err error) error {
	var e *credentialsError
	if errors.As(err, &e) {
		return err
	}
	c := &credentialsError{what: "getting a token with " + f.what, err: err, remedy: "check the network of this host"}
	var refused *oauth2.RetrieveError
	switch {
	case errors.Is(err, context.DeadlineExceeded) && f.what == onMachine:
		return (&metadata{}).failed(backends.InWords("no answer in time", err))
	case errors.Is(err, context.DeadlineExceeded):
		c.err = backends.InWords("no answer in time", err)
	case errors.As(err, &refused):
		code, said := reply(refused)
		c.err = errors.New(strings.TrimSpace(fmt.Sprintf("HTTP status %d %s %s", code, said.Error, oneLine(said.Description))))
		c.permanent = code >= 400 && code < 500 && code != http.StatusTooManyRequests
		c.remedy = "check that the key or account still exists, and this host's clock"
		if said.Error == "invalid_grant" && f.what == userAccount {
			c.remedy = "run gcloud auth application-default login"
		}
	}
	return c
}

// refusal is what a token endpoint says, as RFC 6749 has it.
type refusal struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// reply reads a refusal, which the library does for some kinds of credentials alone.
func reply(e *oauth2.RetrieveError) (code int, said refusal) {
	if e.Response != nil {
		code = e.Response.StatusCode
	}
	if json.Unmarshal(e.Body, &said) != nil {
		said = refusal{e.ErrorCode, e.ErrorDescription}
	}
	return code, said
}

// find looks where Google's own programs look, in their order.
func (a *account) find() (*found, error) {
	if a.c.credentials != "" {
		return a.read(a.c.credentials, "the file in credentials=")
	}
	if path := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); path != "" {
		return a.read(path, "GOOGLE_APPLICATION_CREDENTIALS")
	}
	if path := gcloudFile(); path != "" {
		if _, err := os.Stat(path); err == nil {
			return a.read(path, "gcloud's application default credentials")
		}
	}
	return &found{what: onMachine, source: (&metadata{}).token}, nil
}

// gcloudFile is where gcloud auth application-default login writes.
func gcloudFile() string {
	const name = "application_default_credentials.json"
	if dir := os.Getenv("CLOUDSDK_CONFIG"); dir != "" {
		return filepath.Join(dir, name)
	}
	home, err := os.UserHomeDir()
	if err != nil || runtime.GOOS == "windows" {
		return ""
	}
	return filepath.Join(home, ".config", "gcloud", name)
}

// onMachine are credentials that are in no file.
const onMachine = "the metadata server"

const userAccount = "a person's application default credentials"

// read makes credentials of a file.
func (a *account) read(path, from string) (*found, error) {
	bad := func(err error) error {
		return &credentialsError{what: "reading " + from + ", " + path, err: err, permanent: true,
			remedy: "name a readable JSON file of a service account, of workload identity federation, or of gcloud auth application-default login"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, bad(err)
	}
	var file struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		TokenURI string `json:"token_uri"`
		Quota    string `json:"quota_project_id"`
	}
	if json.Unmarshal(text, &file) != nil {
		return nil, bad(errors.New("it is not JSON")) // the decoder's words could quote it
	}
	f := &found{what: file.Type + " of " + path, quota: file.Quota}
	switch google.CredentialsType(file.Type) {
	case google.ServiceAccount:
		f.what = "service account " + file.Email
	case google.AuthorizedUser:
		f.what = userAccount
	case google.ExternalAccount, google.ExternalAccountAuthorizedUser, google.ImpersonatedServiceAccount:
	default:
		return nil, bad(errors.New("its type is none that lockrun knows"))
	}
	if project := os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"); project != "" {
		f.quota = project
	}
	if f.source, err = a.source(text, file.Type, file.TokenURI); err != nil {
		return nil, bad(errors.New("the key in it cannot be used"))
	}
	return f, nil
}

// source asks for tokens as the file says. A service account signs its own, which Firestore takes without an exchange with
// another server first; where its file names a token server of its own, that one is asked.
func (a *account) source(text []byte, kind, tokenURI string) (source, error) {
	if kind == string(google.ServiceAccount) && (tokenURI == "" || strings.HasSuffix(tokenURI, ".googleapis.com/token")) {
		s, err := google.JWTAccessTokenSourceFromJSON(text, audience)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (*oauth2.Token, error) { return s.Token() }, nil
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		// Made anew for each token, as the library keeps the context that it is made with.
		ctx = context.WithValue(ctx, oauth2.HTTPClient, a.http)
		made, err := google.CredentialsFromJSONWithTypeAndParams(ctx, text, google.CredentialsType(kind), google.CredentialsParams{Scopes: []string{scope}})
		if err != nil {
			return nil, err
		}
		return made.TokenSource.Token()
	}, nil
}

func (a *account) who(ctx context.Context) (string, error) {
	if _, err := a.token(ctx); err != nil {
		return "", err
	}
	f, err := a.where()
	if err != nil || f.what != onMachine {
		return f.what, err
	}
	email, err := (&metadata{}).get(ctx, "email")
	if err != nil {
		return "", f.failed(err)
	}
	return "service account " + strings.TrimSpace(email) + " (metadata server)", nil
}
