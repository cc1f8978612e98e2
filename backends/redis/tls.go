package redis

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// setTLS reads what TLS needs.
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
		return u.NoTLS("write rediss://, or add tls=true")
	}
	if c.network == "unix" {
		return c.wrong("a Unix socket needs no TLS", "leave tls out")
	}
	var err error
	c.tls, err = u.TLS()
	return err
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
