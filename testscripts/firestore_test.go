package testscripts

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestServersFirestore(t *testing.T) {
	t.Parallel()
	e := testserver.StartFirestore(t)
	f := &fleet{host: newHost(t, e.URL("lockrun"), password), wrong: wrongAccount(t),
		forget: func(key string) { forgetDocument(t, e, "lockrun/"+key) },
		freeze: e.Freeze, thaw: e.Thaw, kill: e.Kill}
	f.peace()
	f.sub("emulator by its variable", func(h *host) {
		bare, _, _ := strings.Cut(e.URL("lockrun"), "?")
		h.at(bare).with("FIRESTORE_EMULATOR_HOST="+e.Addr()).lockrun(0, "--key", "variable", "--", "true").silent()
		if s := h.status("variable"); s["state"] != "free" || s["token"] == nil {
			t.Errorf("it was kept elsewhere: %v", s)
		}
	})
	f.sub("odd keys", (*host).checkOddKeys)
	f.sub("waiters run one by one", (*host).checkQueue)
	f.sub("nobody to give credentials", func(h *host) { h.checkMetadata() })
	f.war()
}

// wrongAccount is a backend whose credentials a token endpoint refuses. The secret in them is wrongPassword.
func wrongAccount(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		if strings.Contains(string(body), url.QueryEscape(wrongPassword)) {
			io.WriteString(w, `{"error":"invalid_grant","error_description":"Token has been expired or revoked."}`)
		}
	}))
	t.Cleanup(s.Close)
	text, err := json.Marshal(map[string]string{"type": "authorized_user", "client_id": "c", "client_secret": wrongPassword,
		"refresh_token": wrongPassword, "token_uri": s.URL})
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/credentials.json"
	write(t, path, text, 0o600)
	return "firestore://lockrun-test/lockrun?endpoint=http%3A%2F%2F127.0.0.1:1&credentials=" + path
}

// forgetDocument deletes a document by hand.
func forgetDocument(t *testing.T, e *testserver.Firestore, path string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodDelete, "http://"+e.Addr()+"/v1/projects/lockrun-test/databases/(default)/documents/"+path+"?currentDocument.exists=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer owner")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("deleting %s: %s", path, resp.Status)
	}
}

// checkOddKeys is KEY-03: run, rival, status, history and unlock of keys that paths and shells have another use for.
func (h *host) checkOddKeys() {
	for _, key := range []string{"a/b", "/a", "..", "__x__", "a b", "a%2Fb", "ключ", "-rf", "new\nline"} {
		token := strings.TrimSpace(h.lockrun(0, "acquire", "--key="+key, "--ttl", "10m").stdout())
		h.lockrun(75, "--key="+key, "--", "echo", "started").silent()
		h.lockrun(0, "status", "--json", "--", key)
		h.lockrun(0, "unlock", "--token", token, "--", key)
		h.lockrun(1, "status", "--json", "--", key)
		var last struct {
			Key, Outcome string
		}
		for line := range strings.Lines(h.lockrun(0, "history", "--json", "--", key).stdout()) {
			if err := json.Unmarshal([]byte(line), &last); err != nil || last.Key != key {
				h.t.Errorf("the history of %q has %s", key, line)
			}
		}
		if last.Outcome == "" {
			h.t.Errorf("%q has no history", key)
		}
	}
	h.lockrun(64, "--key", "", "--", "true")
}

// checkQueue is the second half of CNC-04: all who wait run, one at a time and none twice.
func (h *host) checkQueue() {
	many := rounds.Of(8, 30)
	c := h.hold("queue", 0)
	all := make([]*run, many)
	for i := range all {
		all[i] = h.start("--key", "queue", "--wait", "10m", "--", "sh", "-c", "mkdir queue.busy && echo >>queue.ran && rmdir queue.busy")
	}
	c.release().wants(0)
	for _, r := range all {
		r.wants(0)
	}
	if n := strings.Count(h.read(h.file("queue.ran")), "\n"); n != many {
		h.t.Errorf("%d of %d ran", n, many)
	}
}

// checkMetadata: a metadata server that takes the connection and never answers delays nobody beyond the backend timeout.
func (h *host) checkMetadata() {
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
	}))
	h.t.Cleanup(hung.Close)
	h.t.Cleanup(hung.CloseClientConnections)
	u, err := url.Parse(hung.URL)
	if err != nil {
		h.t.Fatal(err)
	}
	h.at("firestore://lockrun-test/lockrun").with("GCE_METADATA_HOST="+u.Host).refused("metadata", "metadata server", "no answer in time")
}

// TestKubernetesExample runs the example's command line as its pod would, and checks the times that have to fit each other.
func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	e := testserver.StartFirestore(t)
	text, err := os.ReadFile(filepath.Join(repo, "examples", "kubernetes", "cronjob.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	args := exampleArgs(t, string(text))
	for _, line := range []string{"concurrencyPolicy: Forbid", "fieldPath: metadata.name", `schedule: "` + after(args, "--schedule") + `"`} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the example does not say %s", line)
		}
	}
	_, rest, _ := strings.Cut(string(text), "terminationGracePeriodSeconds: ")
	var seconds int
	grace, err := time.ParseDuration(after(args, "--grace"))
	if _, err2 := fmt.Sscan(rest, &seconds); err != nil || err2 != nil || time.Duration(seconds)*time.Second <= grace {
		t.Errorf("the pod's grace is %d s, lockrun's %v (%v, %v)", seconds, grace, err, err2)
	}
	h := newHost(t, e.URL("lockrun"), password).with("LOCKRUN_HOLDER=order-reconcile-29411670-x7k2p")
	job := h.program("order-reconcile", "echo reconciled")
	args[len(args)-1] = job
	if out := h.lockrun(0, args...).stdout(); out != "reconciled\n" {
		t.Errorf("it said %q", out)
	}
	if out := h.lockrun(0, args...).stdout(); out != "" { // by hand, once more: the tick is done
		t.Errorf("the second one said %q", out)
	}
	if out := h.lockrun(0, "history", "--json", "order-reconcile").stdout(); strings.Count(out, "order-reconcile-29411670-x7k2p") < 1 {
		t.Errorf("the history does not name the pod: %s", out)
	}
}

// exampleArgs are the args of the example's container, a list that is JSON as well as YAML.
func exampleArgs(t *testing.T, text string) (args []string) {
	t.Helper()
	_, list, _ := strings.Cut(text, " args: ")
	list, _, _ = strings.Cut(list, "]")
	if err := json.Unmarshal([]byte(list+"]"), &args); err != nil {
		t.Fatal(err)
	}
	return args
}

// after is the argument behind another one.
func after(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
