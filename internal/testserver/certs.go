package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// ServerName is a name that server certificates carry beside localhost and the loopback addresses.
const ServerName = "server.lockrun.test"

// Certs is a certificate authority of its own with one certificate for servers and one for clients, made for this test.
type Certs struct {
	CAFile string
	Server CertPair
	Client CertPair
	pool   *x509.CertPool
	client tls.Certificate
}

// CertPair is a certificate and its key, as PEM files.
type CertPair struct{ CertFile, KeyFile string }

// NewCerts makes an authority and its certificates. Two of them do not trust each other.
func NewCerts(t TB) *Certs {
	t.Helper()
	c := &Certs{}
	if err := c.make(newFolder(t, "certs")); err != nil {
		t.Fatalf("making certificates: %v", err)
	}
	return c
}

// ClientConfig is a client's configuration that trusts the authority and offers the client certificate.
func (c *Certs) ClientConfig() *tls.Config {
	return &tls.Config{RootCAs: c.pool, Certificates: []tls.Certificate{c.client}, ServerName: "localhost"}
}

// query is the part of a backend URL that names the files.
func (c *Certs) query(mutual bool) string {
	q := url.Values{"ca": {c.CAFile}}
	if mutual {
		q.Set("cert", c.Client.CertFile)
		q.Set("key", c.Client.KeyFile)
	}
	return q.Encode()
}

func (c *Certs) make(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template(1, "lockrun test authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return err
	}
	c.CAFile = filepath.Join(dir, "ca.pem")
	if err := writePEM(c.CAFile, "CERTIFICATE", der); err != nil {
		return err
	}
	c.pool = x509.NewCertPool()
	if ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	c.pool.AddCert(ca)
	if c.Server, err = issue(dir, "server", ca, key); err != nil {
		return err
	}
	if c.Client, err = issue(dir, "client", ca, key); err != nil {
		return err
	}
	c.client, err = tls.LoadX509KeyPair(c.Client.CertFile, c.Client.KeyFile)
	return err
}

// issue makes one certificate that is good for both sides; servers check clients' and clients check servers'.
func issue(dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (CertPair, error) {
	p := CertPair{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	cert := template(2, name)
	cert.DNSNames = []string{"localhost", ServerName}
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
	if err != nil {
		return p, err
	}
	if err := writePEM(p.CertFile, "CERTIFICATE", der); err != nil {
		return p, err
	}
	der, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	return p, writePEM(p.KeyFile, "PRIVATE KEY", der)
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial<<32 | time.Now().UnixNano()&0xffffffff),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

// writePEM writes a file that every user can read, as servers run as users of their own. The keys are worth nothing.
func writePEM(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
		return fmt.Errorf("writing a test certificate: %w", err)
	}
	return nil
}
