package testserver

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// RedisConfig is how a Redis server is started. Its zero value is a server that keeps nothing on disk, without password.
type RedisConfig struct {
	Password string   // of the default user; "" for none
	Persist  bool     // append-only file, written through: Restart has all that was acknowledged
	TLS      *Certs   // speak nothing but TLS
	Mutual   bool     // with TLS: ask clients for a certificate of the same authority
	Args     []string // more options, as on redis-server's command line: "--maxmemory", "4mb"
}

// Redis is one Redis server, or a sentinel, which speaks the same protocol.
type Redis struct {
	*Process
	port   int
	dir    string
	config RedisConfig
}

// StartRedis starts one server.
func StartRedis(t TB, config RedisConfig) *Redis {
	t.Helper()
	Need(t, "redis-server")
	r := &Redis{config: config, dir: newFolder(t, "redis")}
	r.Process = launch(t, func() (spec, error) { return r.choose("redis-server", r.args) })
	return r
}

// choose gives the server an address and says how to start it there.
func (r *Redis) choose(program string, args func() []string) (spec, error) {
	var err error
	if r.port, err = freePort(); err != nil {
		return spec{}, err
	}
	data := filepath.Join(r.dir, "data")
	return spec{
		name:  fmt.Sprintf("%s on port %d", program, r.port),
		argv:  append([]string{find(program)}, args()...),
		log:   filepath.Join(r.dir, "log"),
		data:  data,
		ready: r.answers,
		quit:  10 * time.Second,
	}, makeFolder(data)
}

// args is redis-server's command line.
func (r *Redis) args() []string {
	port := strconv.Itoa(r.port)
	a := []string{"--bind", "127.0.0.1", "--dir", filepath.Join(r.dir, "data"), "--daemonize", "no", "--save", "",
		"--unixsocket", r.Socket()}
	if c := r.config.TLS; c != nil {
		a = append(a, "--port", "0", "--tls-port", port, "--tls-cert-file", c.Server.CertFile,
			"--tls-key-file", c.Server.KeyFile, "--tls-ca-cert-file", c.CAFile, "--tls-auth-clients", yesNo(r.config.Mutual),
			"--tls-replication", "yes", "--tls-cluster", "yes")
	} else {
		a = append(a, "--port", port)
	}
	if r.config.Password != "" {
		a = append(a, "--requirepass", r.config.Password, "--masterauth", r.config.Password)
	}
	if r.config.Persist {
		a = append(a, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		a = append(a, "--appendonly", "no")
	}
	return append(a, r.config.Args...)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Addr is the server's address, "127.0.0.1:17042".
func (r *Redis) Addr() string { return addr(r.port) }

// Port is the port in Addr.
func (r *Redis) Port() int { return r.port }

// Socket is the path of the server's Unix socket.
func (r *Redis) Socket() string { return filepath.Join(r.dir, "s") }

// URL is how lockrun is told of this server: redis:// or rediss://, with its password and, under TLS, its certificates.
func (r *Redis) URL() string {
	if r.config.TLS != nil {
		return r.config.url("rediss", "", r)
	}
	return r.config.url("redis", "", r)
}

// url names servers that share a configuration.
func (c RedisConfig) url(scheme, path string, servers ...*Redis) string {
	u := &url.URL{Scheme: scheme, Host: strings.Join(addrs(servers), ","), Path: path}
	if c.Password != "" {
		u.User = url.UserPassword("", c.Password)
	}
	if c.TLS != nil {
		u.RawQuery = c.TLS.query(c.Mutual)
	}
	return u.String()
}

func addrs(servers []*Redis) []string {
	all := make([]string, len(servers))
	for i, r := range servers {
		all[i] = r.Addr()
	}
	return all
}

// byPort finds the server with this port, or nil.
func byPort(servers []*Redis, port string) *Redis {
	for _, r := range servers {
		if strconv.Itoa(r.port) == port {
			return r
		}
	}
	return nil
}

// Do asks the server one thing over a connection of its own. The reply is a string, an int64, nil or a []any of these;
// what the server refuses is a RedisError. A frozen server makes it return an error after 5 s.
func (r *Redis) Do(args ...string) (any, error) {
	c, err := r.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.do(args...)
}

// Must is Do for what cannot fail; it ends the test when it does.
func (r *Redis) Must(args ...string) any {
	r.t.Helper()
	v, err := r.Do(args...)
	if err != nil {
		r.t.Fatalf("%s %q: %v", r.spec.name, args, err)
	}
	return v
}

// Info reads one section of INFO.
func (r *Redis) Info(section string) (map[string]string, error) {
	v, err := r.Do("INFO", section)
	text, _ := v.(string)
	return fields(text), err
}

func (r *Redis) dial() (*respConn, error) {
	var config *tls.Config
	if r.config.TLS != nil {
		config = r.config.TLS.ClientConfig()
	}
	c, err := dialRESP(r.Addr(), config)
	if err != nil {
		return nil, err
	}
	if r.config.Password != "" {
		if _, err := c.do("AUTH", r.config.Password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// answers is the readiness check. Another server may have been quicker to take the port, and would answer as well while
// ours is about to give up. A server that is loading its data refuses to PING.
func (r *Redis) answers(pid int) error {
	info, err := r.Info("server")
	if err != nil {
		return err
	}
	if got := info["process_id"]; got != strconv.Itoa(pid) {
		return fmt.Errorf("process %s answers instead of %d", got, pid)
	}
	_, err = r.Do("PING")
	return err
}
