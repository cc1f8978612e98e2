package firestore

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// player plays the answers of Google's servers that an emulator does not give: it looks at tokens, and refuses in all
// the ways that were found in their documentation and in reports. It is no store.
type player struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) // of Firestore
	tokens func(w http.ResponseWriter, r *http.Request) // of the token endpoint and of the metadata server
	seen   []*http.Request
}

// now is a read's answer in which no document is found.
const nothingFound = `[{"missing":"x","readTime":"2026-01-02T03:04:05.123456Z"}]`

func newPlayer(t *testing.T) *player {
	t.Helper()
	g := &player{}
	g.answer = func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, nothingFound) }
	g.tokens = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"from-endpoint","expires_in":3600,"token_type":"Bearer"}`)
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.seen = append(g.seen, r)
		answer := g.answer
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			answer = g.tokens
		}
		g.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(g.Close)
	t.Cleanup(g.CloseClientConnections) // first: requests that hang would keep Close waiting
	// Nothing of this machine's own may be found.
	for name, value := range map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": "", "CLOUDSDK_CONFIG": t.TempDir(), "FIRESTORE_EMULATOR_HOST": "",
		"GCE_METADATA_HOST": g.Listener.Addr().String(), "GOOGLE_CLOUD_QUOTA_PROJECT": "", "HTTP_PROXY": "", "HTTPS_PROXY": ""} {
		t.Setenv(name, value)
	}
	return g
}

// last is the last request to Firestore.
func (g *player) last(t *testing.T) *http.Request {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.seen) - 1; i >= 0; i-- {
		if strings.HasPrefix(g.seen[i].URL.Path, "/v1/") {
			return g.seen[i]
		}
	}
	t.Fatal("Firestore was not asked")
	return nil
}

func (g *player) open(t *testing.T, more string) *backend {
	t.Helper()
	return opened(t, "firestore://some-project/jobs?endpoint="+g.URL+more, backends.Options{Timeout: 2 * time.Second})
}

// says makes Firestore answer so.
func says(code int, status, message, details string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message, status, details)
	}
}

// sayJSON is the answer of a token endpoint.
func sayJSON(code int, text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		io.WriteString(w, text)
	}
}

var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

const secret = "1//hunter2horse"

// credentialsFile writes a file as Google hands it out.
func credentialsFile(t *testing.T, kind, tokenURI string) string {
	t.Helper()
	f := map[string]any{"type": kind, "token_uri": tokenURI}
	switch kind {
	case "service_account":
		der, err := x509.MarshalPKCS8PrivateKey(key())
		if err != nil {
			t.Fatal(err)
		}
		f["client_email"], f["private_key_id"], f["project_id"] = "robot@some-project.iam.gserviceaccount.com", "k1", "some-project"
		f["private_key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	case "authorized_user":
		f["client_id"], f["client_secret"], f["refresh_token"], f["quota_project_id"] = "c", "s", secret, "paying-project"
	case "external_account":
		source := filepath.Join(t.TempDir(), "subject")
		if err := os.WriteFile(source, []byte("subject-token"), 0o600); err != nil {
			t.Fatal(err)
		}
		f["audience"], f["subject_token_type"], f["token_url"] = "//iam.googleapis.com/p", "urn:ietf:params:oauth:token-type:jwt", tokenURI
		f["credential_source"] = map[string]any{"file": source}
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "credentials.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Where credentials come from, and what Firestore is sent of them.
func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		name, kind, uri string // uri: "" Google's own, "-" ours
		env             bool
		token, quota    string
		who             string
	}{
		{name: "a service account signs for itself", kind: "service_account", uri: "https://oauth2.googleapis.com/token", token: "JWT",
			who: "service account robot@some-project.iam.gserviceaccount.com"},
		{name: "unless its file names another token server", kind: "service_account", uri: "-", token: "from-endpoint",
			who: "service account robot@some-project.iam.gserviceaccount.com"},
		{name: "a person", kind: "authorized_user", uri: "-", env: true, token: "from-endpoint", quota: "paying-project", who: userAccount},
		{name: "workload identity federation", kind: "external_account", uri: "-", env: true, token: "from-endpoint", who: "external_account"},
		{name: "the metadata server", token: "from-endpoint", who: "(metadata server)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newPlayer(t)
			more := ""
			if c.kind != "" {
				uri := c.uri
				if uri == "-" {
					uri = g.URL + "/token"
				}
				path := credentialsFile(t, c.kind, uri)
				if c.env {
					t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
				} else {
					more = "&credentials=" + path
				}
			}
			b := g.open(t, more)
			now, err := b.Now(context.Background())
			if err != nil || now.Format(time.RFC3339Nano) != "2026-01-02T03:04:05.123456Z" {
				t.Fatalf("Now = %v, %v", now, err)
			}
			r := g.last(t)
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			if c.token == "JWT" {
				checkJWT(t, token)
			} else if token != c.token {
				t.Errorf("the token is %q", token)
			}
			if got := r.Header.Get("X-Goog-User-Project"); got != c.quota {
				t.Errorf("billed to %q, want %q", got, c.quota)
			}
			if r.URL.Path != "/v1/projects/some-project/databases/(default)/documents:batchGet" {
				t.Errorf("asked %s", r.URL.Path)
			}
			if who, err := b.tokens.who(context.Background()); err != nil || !strings.Contains(who, c.who) {
				t.Errorf("it is told to be %q, %v", who, err)
			}
		})
	}
}

// checkJWT wants a token for Firestore that is signed by the key and short-lived.
func checkJWT(t *testing.T, token string) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", token)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	if err := rsa.VerifyPKCS1v15(&key().PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		t.Error(err)
	}
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Iss, Sub, Aud string
		Iat, Exp      int64
	}
	if err := json.Unmarshal(text, &claims); err != nil || claims.Aud != "https://firestore.googleapis.com/" || claims.Iss != claims.Sub ||
		claims.Exp-claims.Iat > 3600 {
		t.Errorf("claims %s", text)
	}
}

func TestQuotaProjectAndDatabase(t *testing.T) {
	g := newPlayer(t)
	b := g.open(t, "&quota_project=payer&database=second")
	if _, err := b.Now(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := g.last(t)
	if r.Header.Get("X-Goog-User-Project") != "payer" || r.URL.Path != "/v1/projects/some-project/databases/second/documents:batchGet" {
		t.Errorf("asked %s with %v", r.URL.Path, r.Header)
	}
	if b.Name() != "firestore://some-project/jobs?database=second" {
		t.Errorf("it is called %s", b.Name())
	}
}

// TestRefusals: each way in which Google says no is told in one line with its remedy, and never as a skip.
func TestRefusals(t *testing.T) {
	const disabled = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SERVICE_DISABLED","domain":"googleapis.com","metadata":{"service":"firestore.googleapis.com"}}`
	denied := `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"USER_PROJECT_DENIED"}`
	for name, c := range map[string]struct {
		answer    func(http.ResponseWriter, *http.Request)
		permanent bool
		parts     []string
	}{
		"no right":    {says(403, "PERMISSION_DENIED", "Missing or insufficient permissions.", ""), true, []string{"PERMISSION_DENIED", "roles/datastore.user", "some-project"}},
		"API off":     {says(403, "PERMISSION_DENIED", "Cloud Firestore API has not been used in project 1 before or it is disabled.", disabled), true, []string{"gcloud services enable firestore.googleapis.com"}},
		"payer":       {says(403, "PERMISSION_DENIED", "Caller does not have required permission to use project payer.", denied), true, []string{"serviceusage.serviceUsageConsumer"}},
		"bad token":   {says(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", ""), true, []string{"UNAUTHENTICATED", "clock"}},
		"no database": {says(404, "NOT_FOUND", "The database (default) does not exist for project some-project", ""), true, []string{"does not exist", "gcloud firestore databases create"}},
		"other mode":  {says(400, "FAILED_PRECONDITION", "The Cloud Firestore API is not available for Firestore in Datastore Mode database.", ""), true, []string{"native mode"}},
		"bad request": {says(400, "INVALID_ARGUMENT", "Invalid project number", ""), true, []string{"check project"}},
		"quota":       {says(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", ""), false, []string{"quotas"}},
		"down":        {says(503, "UNAVAILABLE", "The service is currently unavailable.", ""), false, []string{"UNAVAILABLE"}},
		"a page":      {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>sign in</html>") }, false, []string{"not Firestore's REST interface"}},
		"a proxy":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, false, []string{"HTTP status 403"}},
		"moved":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, false, []string{"HTTP status 302"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newPlayer(t)
			g.answer = c.answer
			b := g.open(t, "")
			_, err := b.Acquire(within(t, 5*time.Second), request("k"))
			unknown(t, err, c.permanent, append(c.parts, "acquire on firestore://some-project/jobs")...)
			_, err = b.Status(within(t, 5*time.Second), "k")
			unknown(t, err, c.permanent, c.parts...)
			checks := b.Doctor(context.Background())
			if last := checks[len(checks)-1]; last.OK || last.Remedy == "" || last.Cause == "" {
				t.Errorf("the doctor finds %+v", checks)
			}
		})
	}
}

// TestClockSkew: what Google says about a token from a clock that is off does not name the clock.
func TestClockSkew(t *testing.T) {
	g := newPlayer(t)
	refuse := says(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", "")
	g.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-2*time.Hour).UTC().Format(http.TimeFormat))
		refuse(w, r)
	}
	_, err := g.open(t, "").Now(within(t, 5*time.Second))
	unknown(t, err, true, "set this host's clock", "2h0m")
}

// TestTokenFaults: those of the token endpoint and of the metadata server.
func TestTokenFaults(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server learns that its client is gone only when it has read all
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		kind      string
		tokens    func(http.ResponseWriter, *http.Request)
		permanent bool
		parts     []string
	}{
		"key deleted":       {"service_account", sayJSON(400, `{"error":"invalid_grant","error_description":"Invalid grant: account not found"}`), true, []string{"account not found", "still exists"}},
		"clock off":         {"service_account", sayJSON(400, `{"error":"invalid_grant","error_description":"Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim."}`), true, []string{"iat and exp", "clock"}},
		"logged out":        {"authorized_user", sayJSON(400, `{"error":"invalid_grant","error_description":"Token has been expired or revoked."}`), true, []string{"gcloud auth application-default login"}},
		"endpoint down":     {"authorized_user", sayJSON(503, ``), false, []string{"HTTP status 503"}},
		"endpoint hangs":    {"authorized_user", hang, false, []string{"no answer in time"}},
		"metadata hangs":    {"", hang, false, []string{"metadata server", "no answer in time", "GOOGLE_APPLICATION_CREDENTIALS"}},
		"no account":        {"", sayJSON(404, `not found`), true, []string{"no service account", "workload identity"}},
		"not Google's":      {"", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "router") }, false, []string{"not Google's"}},
		"metadata is ill":   {"", sayJSON(500, `oops`), false, []string{"HTTP status 500"}},
		"metadata babbling": {"", sayJSON(200, `hello`), false, []string{"no token"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newPlayer(t)
			g.tokens = c.tokens
			more := ""
			if c.kind != "" {
				more = "&credentials=" + credentialsFile(t, c.kind, g.URL+"/token")
			}
			b := g.open(t, more)
			began := time.Now()
			_, err := b.Acquire(within(t, time.Second), request("k"))
			unknown(t, err, c.permanent, c.parts...)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v of 1s", took)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("a secret is told: %v", err)
			}
			if checks := b.Doctor(within(t, time.Second)); len(checks) != 1 || checks[0].OK || checks[0].Check != "credentials" {
				t.Errorf("the doctor finds %+v", checks)
			}
		})
	}
}

// TestNoMetadataServer is a machine that is none of Google's.
func TestNoMetadataServer(t *testing.T) {
	newPlayer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Setenv("GCE_METADATA_HOST", l.Addr().String())
	b := opened(t, "firestore://p/c", backends.Options{Timeout: time.Second})
	_, err = b.Now(context.Background())
	unknown(t, err, false, "finding credentials", "GOOGLE_APPLICATION_CREDENTIALS", "?credentials=FILE")
}

func TestBadCredentialsFiles(t *testing.T) {
	newPlayer(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"nothing": "", "text": "hunter2horse", "type": `{"type":"hunter2horse"}`,
		"key": `{"type":"service_account","client_email":"a@b","private_key":"hunter2horse"}`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := opened(t, "firestore://p/c?credentials="+path, backends.Options{})
		_, err := b.Now(context.Background())
		unknown(t, err, true, path, "credentials=")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the file's contents are told: %v", err)
		}
	}
	b := opened(t, "firestore://p/c?credentials="+dir+"/missing", backends.Options{})
	_, err := b.Now(context.Background())
	unknown(t, err, true, "no such file")
}

// TestTokenIsRenewed: a token that is refused although it was good before is replaced once.
func TestTokenIsRenewed(t *testing.T) {
	g := newPlayer(t)
	b := g.open(t, "")
	for range 2 {
		if _, err := b.Now(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	g.mu.Lock()
	g.answer = func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			says(401, "UNAUTHENTICATED", "expired", "")(w, r)
			return
		}
		io.WriteString(w, nothingFound)
	}
	g.mu.Unlock()
	if _, err := b.Now(context.Background()); err != nil || n != 2 {
		t.Errorf("Now = %v after %d requests", err, n)
	}
}
