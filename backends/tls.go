package backends

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
)

// TLS is what the parameters ca, cert, key and server_name ask for. Without ca the system's roots count, and with them
// SSL_CERT_FILE; without server_name the host's own name is checked. A file that cannot be used gives *UsageError.
func (u *URL) TLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name")}
	if err := u.setRoots(c); err != nil {
		return nil, err
	}
	if err := u.setCertificate(c); err != nil {
		return nil, err
	}
	return c, nil
}

// NoTLS returns *UsageError where a parameter is given that means nothing without TLS. remedy tells how TLS is asked for.
func (u *URL) NoTLS(remedy string) error {
	for _, name := range []string{"ca", "cert", "key", "server_name"} {
		if u.Param(name) != "" {
			return u.wrong(name+" is given, but no TLS is asked for", remedy)
		}
	}
	return nil
}

func (u *URL) setRoots(c *tls.Config) error {
	file := u.Param("ca")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return u.wrong("ca cannot be read: "+fileCause(err), "check the file and its rights")
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return u.wrong("ca "+file+" holds no certificate", "it has to be PEM")
	}
	return nil
}

func (u *URL) setCertificate(c *tls.Config) error {
	cert, key := u.Param("cert"), u.Param("key")
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		return u.wrong("key is given without cert", "give both")
	case key == "":
		key = cert
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return u.wrong("cert and key cannot be used: "+fileCause(err), "both have to be readable PEM files that belong together")
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

func (u *URL) wrong(why, remedy string) error {
	return &UsageError{What: u.Scheme + " URL", Why: why, Remedy: remedy}
}

// fileCause is an error about a file as one line that names it.
func fileCause(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
