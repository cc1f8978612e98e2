package firestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/oauth2"

	"github.com/lockrun/lockrun/backends"
)

// metadata is the server that gives tokens to what runs on Google's machines, GKE's workload identity included.
//
// Google's own library is not used for it: it first finds out whether this is such a machine, by a name look-up and probes
// under no context of ours. Here one request settles it, and ends with the context that it is made under.
type metadata struct{}

// direct is its client: what is on this machine is not asked through a proxy.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// metadataAddress is the same on each machine.
const metadataAddress = "169.254.169.254"

func (m *metadata) token(ctx context.Context) (*oauth2.Token, error) {
	text, err := m.get(ctx, "token")
	if err != nil {
		return nil, err
	}
	var t struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"` // seconds
	}
	if json.Unmarshal([]byte(text), &t) != nil || t.Token == "" {
		return nil, m.failed(errors.New("its answer holds no token"))
	}
	return &oauth2.Token{AccessToken: t.Token, Expiry: time.Now().Add(time.Duration(t.Expires) * time.Second)}, nil
}

// get reads one attribute of the account that this machine, or pod, runs as.
func (m *metadata) get(ctx context.Context, what string) (string, error) {
	host := os.Getenv("GCE_METADATA_HOST")
	if host == "" {
		host = metadataAddress
	}
	target := url.URL{Scheme: "http", Host: host, Path: "/computeMetadata/v1/instance/service-accounts/default/" + what}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return "", m.failed(err)
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := direct.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if ctx.Err() != nil {
			err = backends.InWords("no answer in time", ctx.Err())
		}
		return "", m.failed(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return "", m.failed(err)
	case resp.Header.Get("Metadata-Flavor") != "Google":
		return "", m.failed(errors.New("what answers is not Google's"))
	case resp.StatusCode == http.StatusNotFound:
		return "", &credentialsError{what: "getting a token from the metadata server", err: errors.New("this machine or pod has no service account"),
			remedy: "attach one, or bind the pod's account by workload identity", permanent: true}
	case resp.StatusCode != http.StatusOK:
		return "", &credentialsError{what: "getting a token from the metadata server", err: fmt.Errorf("HTTP status %s", resp.Status),
			remedy: "look at the service account of this machine, or at the workload identity of this pod"}
	}
	return string(text), nil
}

// failed is told to those who have no credentials at all, too: the metadata server is where the search for them ends.
func (m *metadata) failed(err error) error {
	return &credentialsError{what: "finding credentials: there is no GOOGLE_APPLICATION_CREDENTIALS and no file of gcloud's, and the metadata server does not help", err: err,
		remedy: "name a service account's file by ?credentials=FILE or GOOGLE_APPLICATION_CREDENTIALS, or run where Google gives an account"}
}
