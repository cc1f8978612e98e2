package mysql_test

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// CFG-02: passwords of any characters, in the URL and beside it.
func TestPasswordsOfAnyCharacters(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	for _, password := range []string{"#", "@", "/", "%", ":", "?", "&", "=", " ", "ü", `'`, `"`, `\`, ";", "+", "%41", "a@b/c:d?e#f", strings.Repeat("x", 200)} {
		newUser(m, "odd", "'"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password)+"'")
		m.Exec("GRANT SELECT ON lockrun.* TO odd")
		beside := addParam(m.URLFor("odd", ""), "table="+s.table)
		inside := strings.Replace(beside, "odd@", "odd:"+strings.ReplaceAll(url.QueryEscape(password), "+", "%20")+"@", 1)
		for _, c := range []struct {
			url string
			o   backends.Options
		}{{inside, backends.Options{}}, {inside, backends.Options{Password: "of another"}}, {beside, backends.Options{Password: password}}} {
			b := open(t, c.url, c.o)
			if _, err := b.Status(within(t, 20*time.Second)); err != nil {
				t.Errorf("password %q: %v", password, err)
			}
			if strings.Contains(b.Name(), password) && len(password) > 1 {
				t.Errorf("the name %q tells the password", b.Name())
			}
			b.Close()
		}
	}
}

func TestUnixSocketAndIPv6(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--bind-address=127.0.0.1,::1"}})
	s := newStore(t, m)
	_, port, _ := net.SplitHostPort(m.Addr())
	for _, raw := range []string{
		"mysql://root@localhost/lockrun?table=" + s.table + "&socket=" + url.QueryEscape(m.Socket()),
		"mysql://root@[::1]:" + port + "/lockrun?table=" + s.table,
	} {
		b := open(t, raw, backends.Options{})
		mustRelease(t, mustAcquire(t, b, request("k")))
		b.Close()
	}
	b := open(t, "mysql://root@localhost/lockrun?socket=/none/m.sock", backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, false, "/none/m.sock", "connecting")
}

func TestTLS(t *testing.T) {
	certs := testserver.NewCerts(t)
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{TLS: certs})
	s := newStore(t, m) // its URL names the authority
	m.Exec("CREATE USER safe IDENTIFIED BY 'secret' REQUIRE X509")
	m.Exec("GRANT " + everyday + " ON lockrun.* TO safe")
	plain := "mysql://root@" + m.Addr() + "/lockrun?table=" + s.table
	safe := "mysql://safe:secret@" + m.Addr() + "/lockrun?table=" + s.table + "&ca=" + url.QueryEscape(certs.CAFile)
	pair := "&cert=" + url.QueryEscape(certs.Client.CertFile) + "&key=" + url.QueryEscape(certs.Client.KeyFile)

	for name, raw := range map[string]string{
		"tls and ca": s.url, "ca alone": plain + "&ca=" + url.QueryEscape(certs.CAFile), "a client's certificate": safe + pair,
		"another name": s.url + "&server_name=" + testserver.ServerName, "none": plain,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, raw, backends.Options{})
			defer b.Close()
			mustRelease(t, mustAcquire(t, b, request("k")))
		})
	}
	m.Exec("SET GLOBAL require_secure_transport = ON")
	for name, c := range map[string]struct {
		url   string
		words []string
	}{
		"an authority that is not known":  {plain + "&tls=true", []string{"TLS", "authority", "ca"}},
		"another authority":               {plain + "&ca=" + url.QueryEscape(testserver.NewCerts(t).CAFile), []string{"authority"}},
		"a name that is not the server's": {s.url + "&server_name=other.example", []string{"other.example", "server_name"}},
		"no client's certificate":         {safe, []string{"1045"}},
		"TLS is asked for by the server":  {plain, []string{"tls=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, c.url, backends.Options{})
			defer b.Close()
			_, err := b.Acquire(within(t, 20*time.Second), request("k"))
			unknown(t, err, true, c.words...)
		})
	}
}

// A server does not say that it refuses a client's certificate.
func TestAClientCertificateOfAnotherAuthority(t *testing.T) {
	certs, other := testserver.NewCerts(t), testserver.NewCerts(t).Client
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{TLS: certs})
	pair := "&cert=" + url.QueryEscape(other.CertFile) + "&key=" + url.QueryEscape(other.KeyFile)
	b := open(t, "mysql://root@"+m.Addr()+"/lockrun?ca="+url.QueryEscape(certs.CAFile)+pair, backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, false, "TLS", "cert")
}

func TestTLSAgainstAServerWithout(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	b := open(t, m.URL()+"?tls=true", backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, true, "does not offer TLS", m.Addr())
}

// Ways to log in that MariaDB and MySQL offer, beside the password that all tests use.
func TestWaysToLogIn(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--plugin-load-add=auth_ed25519"}})
	s := newStore(t, m)
	m.Exec("CREATE USER curve IDENTIFIED VIA ed25519 USING PASSWORD('secret')")
	m.Exec("CREATE USER old IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')")
	for _, user := range []string{"curve", "old"} {
		m.Exec("GRANT " + everyday + " ON lockrun.* TO " + user)
		b := open(t, s.asUser(user, "secret"), backends.Options{})
		mustRelease(t, mustAcquire(t, b, request("k")))
		b.Close()
	}
}
