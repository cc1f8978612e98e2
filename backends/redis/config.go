package redis

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// The ports that are meant where none is written.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// config is what a URL and its options ask for.
type config struct {
	name     string // without secrets
	scheme   string
	addrs    []string // host:port, or the path of a socket
	network  string   // tcp or unix
	db       int
	master   string // Sentinel's name of it
	user     string
	password string

	sentinelUser     string
	sentinelPassword string

	client   string // shown by CLIENT LIST
	prefix   string
	replicas int         // how many have to have a write before it counts; 0: the master alone
	tls      *tls.Config // nil without TLS

	keep    backends.Keep
	timeout time.Duration
}

// parameters that every topology takes, beside those of TLS.
var parameters = []string{"client_name", "prefix", "wait_replicas", "tls", "ca", "cert", "key", "server_name"}

// configure turns URL and options into a config. Whatever it refuses is a *backends.UsageError.
func configure(u *backends.URL, o backends.Options) (*config, error) {
	known := parameters
	switch u.Scheme {
	case "redis+sentinel":
		known = append(known[:len(known):len(known)], "sentinel_user", "sentinel_password_file")
	case "redis", "rediss":
		known = append(known[:len(known):len(known)], "socket")
	}
	if err := u.Only(known...); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	c := &config{name: u.String(), scheme: u.Scheme, network: "tcp", user: u.User, password: u.Password, master: "",
		client: "lockrun", prefix: defaultPrefix, keep: o.Keep, timeout: o.Timeout}
	if !u.HasPassword {
		c.password = o.Password
	}
	for _, step := range []func(*backends.URL) error{c.setPlace, c.setHosts, c.setNames, c.setReplicas, c.setTLS, c.setSentinel} {
		if err := step(u); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *config) wrong(why, remedy string) error {
	return &backends.UsageError{What: c.scheme + " URL", Why: why, Remedy: remedy}
}

// setPlace reads the path: the master's name for Sentinel, and the number of the database.
func (c *config) setPlace(u *backends.URL) error {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if c.scheme == "redis+sentinel" {
		c.master, parts = parts[0], append(parts[1:], "")
		if c.master == "" || strings.ContainsAny(c.master, " \t\r\n") {
			return c.wrong("the path does not name the master", "write redis+sentinel://h1,h2,h3/mymaster")
		}
	}
	if len(parts) > 1 && parts[1] != "" {
		return c.wrong("the path has too many parts", "it is the number of the database")
	}
	if parts[0] == "" {
		return nil
	}
	db, err := strconv.Atoi(parts[0])
	if err != nil || db < 0 || db > 1<<20 {
		return c.wrong("the path is not the number of a database", "write /0, or leave it out")
	}
	if db != 0 && c.scheme == "redis+cluster" {
		return c.wrong("a cluster has no database but 0", "leave the path out")
	}
	c.db = db
	return nil
}

// setHosts adds the default port and checks how many there have to be.
func (c *config) setHosts(u *backends.URL) error {
	if socket := u.Param("socket"); len(u.Query["socket"]) > 0 {
		return c.setSocket(u, socket)
	}
	port := defaultPort
	if c.scheme == "redis+sentinel" {
		port = defaultSentinelPort
	}
	for _, h := range u.Hosts {
		c.addrs = append(c.addrs, withPort(h, port))
	}
	single := c.scheme == "redis" || c.scheme == "rediss"
	switch n := len(c.addrs); {
	case n == 0 && single:
		c.addrs = []string{"localhost:" + defaultPort}
	case n == 0:
		return c.wrong("there is no host", "name the servers, separated by commas")
	case n > 1 && single:
		return c.wrong("there is more than one host", "use redis+sentinel://, redis+cluster:// or redis+quorum:// for several servers")
	case c.scheme == "redis+quorum" && n < 3:
		return c.wrong(fmt.Sprintf("a majority of %d survives no failure", n), "name at least three independent servers")
	}
	seen := map[string]bool{}
	for _, a := range c.addrs {
		if seen[strings.ToLower(a)] {
			return c.wrong("a host is named twice, and would count twice", "name each server once")
		}
		seen[strings.ToLower(a)] = true
	}
	return nil
}

func (c *config) setSocket(u *backends.URL, path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return c.wrong("the socket is not an absolute path", "write redis:///?socket=/run/redis/redis.sock")
	case len(u.Hosts) > 0:
		return c.wrong("it has both a host and a socket", "leave one of them out")
	case c.scheme == "rediss":
		return c.wrong("a Unix socket needs no TLS", "write redis:// with a socket")
	}
	c.network, c.addrs, c.name = "unix", []string{path}, "redis://"+path
	return nil
}

// withPort completes name, name:port, [address] and [address]:port, which ParseURL has checked.
func withPort(host, port string) string {
	name := strings.Trim(host, "[]")
	if h, p, err := net.SplitHostPort(host); err == nil {
		name = h
		if p != "" {
			port = p
		}
	}
	return net.JoinHostPort(name, port)
}

func (c *config) setNames(u *backends.URL) error {
	if p := u.Param("prefix"); p != "" {
		c.prefix = p
	}
	if n := u.Param("client_name"); n != "" {
		c.client = n
	}
	if strings.ContainsFunc(c.client, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c.wrong("client_name has a space or something that is not ASCII, which Redis refuses", "use letters, digits and dashes")
	}
	return checkPrefix(c.prefix)
}

func (c *config) setReplicas(u *backends.URL) error {
	v := u.Param("wait_replicas")
	if len(u.Query["wait_replicas"]) == 0 {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > 100 {
		return c.wrong("wait_replicas is not a number from 0 to 100", "write wait_replicas=1")
	}
	c.replicas = n
	return nil
}

func (c *config) setSentinel(u *backends.URL) error {
	c.sentinelUser = u.Param("sentinel_user")
	file := u.Param("sentinel_password_file")
	if file == "" {
		if c.sentinelUser != "" {
			return c.wrong("sentinel_user has no password", "add sentinel_password_file")
		}
		return nil
	}
	var err error
	c.sentinelPassword, err = readSecret(file)
	if err != nil {
		return c.wrong("sentinel_password_file cannot be used: "+err.Error(), "check the file and its rights")
	}
	return nil
}
