package firestore

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// TestNetworkFaults is CON-01: each is told in time, with host and phase.
func TestNetworkFaults(t *testing.T) {
	newPlayer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, as the kernel does, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hole, port := silent.Addr().String(), closed.Addr().String()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, nothingFound) }))
	defer secure.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain := httptest.NewServer(secure.Config.Handler)
	defer plain.Close()
	host := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for name, c := range map[string]struct {
		query     string
		permanent bool
		parts     []string
	}{
		"closed port":       {"emulator=" + port, false, []string{"connecting", port, "connection refused"}},
		"no answer":         {"emulator=" + hole, false, []string{"asking", hole, "no answer in time"}},
		"no TLS answer":     {"endpoint=https://" + hole, false, []string{"TLS handshake", hole, "no answer in time"}},
		"no such name":      {"emulator=no-such-host.invalid:1", false, []string{"no-such-host.invalid"}},
		"TLS against plain": {"endpoint=https://" + host(plain), true, []string{"does not speak TLS", "FIRESTORE_EMULATOR_HOST"}},
		"plain against TLS": {"emulator=" + host(secure), false, nil}, // the server's words, or it cuts the connection first
		"a strange CA":      {"endpoint=https://" + host(secure), true, []string{"TLS handshake", "SSL_CERT_FILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := opened(t, "firestore://p/c?"+c.query, backends.Options{})
			began := time.Now()
			_, err := b.Acquire(within(t, time.Second), request("k"))
			unknown(t, err, c.permanent, c.parts...)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v of 1s", took)
			}
		})
	}
}

// TestSharedConnectionDies: HTTP/2 keeps using a connection on which requests end without an answer. One whose network has
// gone, as after a change of address, must not keep the beats from arriving.
func TestSharedConnectionDies(t *testing.T) {
	newPlayer(t)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: emulatorFor(t).Addr()})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	versions := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case versions <- r.ProtoMajor:
		default:
		}
		r.Header.Set("Authorization", "Bearer owner")
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	wire := testserver.StartProxy(t, server.Listener.Addr().String())
	raw := strings.Split(freshURL(t), "?")[0] + "?endpoint=https://" + wire.Addr()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	connect := func() *backend {
		b := opened(t, raw, backends.Options{})
		b.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots
		b.http.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
		return b
	}
	before := wire.Accepted()
	release(t, acquire(t, connect(), request("k")))
	if n := wire.Accepted() - before; n != 1 {
		t.Errorf("a run took %d connections", n)
	}
	if v := <-versions; v != 2 {
		t.Fatalf("it speaks HTTP/%d", v)
	}
	b := connect()
	l := acquire(t, b, request("k"))
	wire.BlackHole()
	unknown(t, l.Renew(within(t, time.Second), time.Minute), false, "asking", "no answer in time")
	wire.Heal()
	if err := l.Renew(within(t, patience), time.Minute); err != nil {
		t.Errorf("Renew after the network came back: %v", err)
	}
	if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Errorf("Release: %v", err)
	}
}
