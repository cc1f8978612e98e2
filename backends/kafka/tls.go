package kafka

import "github.com/lockrun/lockrun/backends"

// setTLS reads what TLS needs.
func (c *config) setTLS(u *backends.URL) (err error) {
	switch u.Param("tls") {
	case "true":
		c.wire.TLS, err = u.TLS()
		return err
	case "false", "":
		return u.NoTLS("add tls=true")
	}
	return wrong("tls is neither true nor false", "write tls=true")
}
