package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// setTLS reads what TLS needs. Without ca the system's roots count, and with them SSL_CERT_FILE.
func (c *config) setTLS(u *backends.URL) error {
	on := c.scheme == "rediss"
	switch v := u.Param("tls"); {
	case v == "true":
		on = true
	case v == "false" && !on, v == "":
	default:
		return c.wrong("tls is neither true nor false", "write tls=true")
	}
	if !on {
		for _, name := range []string{"ca", "cert", "key", "server_name"} {
			if u.Param(name) != "" {
				return c.wrong(name+" is given, but no TLS is asked for", "write rediss://, or add tls=true")
			}
		}
		return nil
	}
	if c.network == "unix" {
		return c.wrong("a Unix socket needs no TLS", "leave tls out")
	}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name")}
	if err := c.setRoots(u.Param("ca")); err != nil {
		return err
	}
	return c.setCertificate(u.Param("cert"), u.Param("key"))
}

func (c *config) setRoots(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c.wrong("ca cannot be read: "+fileCause(err), "check the file and its rights")
	}
	c.tls.RootCAs = x509.NewCertPool()
	if !c.tls.RootCAs.AppendCertsFromPEM(text) {
		return c.wrong("ca "+file+" holds no certificate", "it has to be PEM")
	}
	return nil
}

func (c *config) setCertificate(cert, key string) error {
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		return c.wrong("key is given without cert", "give both")
	case key == "":
		key = cert
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return c.wrong("cert and key cannot be used: "+fileCause(err), "both have to be readable PEM files that belong together")
	}
	c.tls.Certificates = []tls.Certificate{pair}
	return nil
}

// readSecret reads a password file. A newline at its end belongs to the editor, not to the password.
func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", errors.New(fileCause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", errors.New(fileCause(err))
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", errors.New(file + " is empty")
	}
	return secret, nil
}

// fileCause is an error about a file as one line that names it.
func fileCause(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
