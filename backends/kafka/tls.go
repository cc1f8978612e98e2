package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// setTLS reads what TLS needs. Without ca the system's roots count, and with them SSL_CERT_FILE.
func (c *config) setTLS(u *backends.URL) error {
	switch u.Param("tls") {
	case "true":
		return c.useTLS(u)
	case "false", "":
		for _, name := range []string{"ca", "cert", "key", "server_name"} {
			if u.Param(name) != "" {
				return wrong(name+" is given, but no TLS is asked for", "add tls=true")
			}
		}
		return nil
	}
	return wrong("tls is neither true nor false", "write tls=true")
}

func (c *config) useTLS(u *backends.URL) error {
	c.wire.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name")}
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
		return wrong("ca cannot be read: "+fileCause(err), "check the file and its rights")
	}
	c.wire.TLS.RootCAs = x509.NewCertPool()
	if !c.wire.TLS.RootCAs.AppendCertsFromPEM(text) {
		return wrong("ca "+file+" holds no certificate", "it has to be PEM")
	}
	return nil
}

func (c *config) setCertificate(cert, key string) error {
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		return wrong("key is given without cert", "give both")
	case key == "":
		key = cert
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return wrong("cert and key cannot be used: "+fileCause(err), "both have to be readable PEM files that belong together")
	}
	c.wire.TLS.Certificates = []tls.Certificate{pair}
	return nil
}

// fileCause is an error about a file as one line that names it.
func fileCause(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
