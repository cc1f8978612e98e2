package backends

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTLSParameters(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, why string }{
		{"?ca=/nowhere.pem", "ca cannot be read: open /nowhere.pem: no such file"},
		{"?ca=" + noPEM, "holds no certificate"},
		{"?key=" + noPEM, "key is given without cert"},
		{"?cert=" + noPEM, "cert and key cannot be used"},
	} {
		u, err := ParseURL("kafka://h/t" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		var wrong *UsageError
		if _, err := u.TLS(); !errors.As(err, &wrong) || !strings.Contains(wrong.Why, c.why) || wrong.What != "kafka URL" {
			t.Errorf("%s: %v, want %q", c.query, err, c.why)
		}
		if err := u.NoTLS("add tls=true"); !errors.As(err, &wrong) || wrong.Remedy != "add tls=true" {
			t.Errorf("%s without TLS: %v", c.query, err)
		}
	}
	u, err := ParseURL("kafka://h/t?server_name=other")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := u.TLS(); err != nil || c.ServerName != "other" || c.RootCAs != nil || c.InsecureSkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
}
