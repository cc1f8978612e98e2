package zookeeper

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

const (
	defaultPort   = "2181"
	defaultChroot = "/lockrun"
)

// config is what a URL and its options ask for.
type config struct {
	name     string   // without secrets
	hosts    []string // host:port
	root     string   // the chroot, without a slash at its end
	user     string   // "" without credentials
	password string
	tls      *tls.Config // nil without TLS
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	watched  func(zk.Event) // told of each notification; nil: nobody. It must not block

	keep     backends.Keep
	timeout  time.Duration
	readOnly bool
}

// configure turns URL and options into a config. Whatever it refuses is a *backends.UsageError.
func configure(u *backends.URL, o backends.Options) (*config, error) {
	if err := u.Only("tls", "ca", "cert", "key", "server_name"); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	c := &config{user: u.User, password: u.Password, keep: o.Keep, timeout: o.Timeout, readOnly: o.ReadOnly,
		dial: new(net.Dialer).DialContext}
	if !u.HasPassword {
		c.password = o.Password
	}
	for _, step := range []func(*backends.URL) error{c.setHosts, c.setRoot, c.checkUser, c.setTLS} {
		if err := step(u); err != nil {
			return nil, err
		}
	}
	named := *u
	named.Path = c.root
	c.name = named.String()
	return c, nil
}

func wrong(why, remedy string) error {
	return &backends.UsageError{What: "zookeeper URL", Why: why, Remedy: remedy}
}

func (c *config) setHosts(u *backends.URL) error {
	if len(u.Hosts) == 0 {
		return wrong("it names no host", "write zookeeper://h1:2181,h2:2181,h3:2181/chroot")
	}
	for _, h := range u.Hosts {
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port = strings.Trim(h, "[]"), defaultPort
		}
		if port == "" {
			port = defaultPort
		}
		c.hosts = append(c.hosts, net.JoinHostPort(host, port))
	}
	return nil
}

// setRoot checks the chroot by the rules that servers have for names.
func (c *config) setRoot(u *backends.URL) error {
	c.root = strings.TrimRight(u.Path, "/")
	if c.root == "" {
		c.root = defaultChroot
	}
	for _, part := range strings.Split(c.root, "/")[1:] {
		switch {
		case part == "":
			return wrong("the chroot has an empty part", "write it like /team/lockrun")
		case part == "." || part == "..":
			return wrong("the chroot has a part "+part, "write it as an absolute path")
		case strings.ContainsFunc(part, refused):
			return wrong("the chroot has a character that ZooKeeper does not allow", "use letters, digits, dashes and the like")
		}
	}
	if c.root == "/zookeeper" || strings.HasPrefix(c.root, "/zookeeper/") {
		return wrong("the chroot /zookeeper belongs to the servers themselves", "use another")
	}
	return nil
}

// refused is what a server's PathUtils.validatePath refuses.
func refused(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
}

// checkUser wants both or neither: digest authentication is "user:password", and who would leave the password out would
// close the nodes to everybody else without a secret.
func (c *config) checkUser(u *backends.URL) error {
	switch {
	case c.user == "" && c.password != "":
		return wrong("there is a password without a user", "write zookeeper://user@host")
	case c.user != "" && c.password == "":
		return wrong("there is a user without a password", "name a password_file, or write zookeeper://user:password@host")
	case strings.Contains(c.user, ":"):
		return wrong("the user's name has a ':'", "digest authentication cannot tell it from the password; use another name")
	}
	return nil
}

// acl is whom new nodes are open to: with credentials their owner alone.
func (c *config) acl() []zk.ACL {
	if c.user != "" {
		return zk.AuthACL(zk.PermAll)
	}
	return zk.WorldACL(zk.PermAll)
}

// setTLS reads what TLS needs.
func (c *config) setTLS(u *backends.URL) (err error) {
	switch u.Param("tls") {
	case "true":
		c.tls, err = u.TLS()
		return err
	case "false", "":
		return u.NoTLS("add tls=true")
	}
	return wrong("tls is neither true nor false", "write tls=true")
}
