package testserver

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"
)

// Etcd is one etcd server without a cluster.
type Etcd struct {
	*Process
	port int
	dir  string
}

// StartEtcd starts one server. Its election time-out is half a second, so that it grants leases from a second on.
func StartEtcd(t TB) *Etcd {
	t.Helper()
	Need(t, "etcd")
	e := &Etcd{dir: newFolder(t, "etcd")}
	e.Process = launch(t, e.choose)
	return e
}

func (e *Etcd) choose() (spec, error) {
	var err error
	if e.port, err = freePort(); err != nil {
		return spec{}, err
	}
	peer, err := freePort()
	if err != nil {
		return spec{}, err
	}
	data, clients, peers := filepath.Join(e.dir, "data"), "http://"+addr(e.port), "http://"+addr(peer)
	return spec{
		name: fmt.Sprintf("etcd on port %d", e.port),
		argv: []string{find("etcd"), "--name", "n", "--data-dir", data,
			"--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "n=" + peers,
			"--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap"},
		log:   filepath.Join(e.dir, "log"),
		data:  data,
		ready: e.answers,
		quit:  10 * time.Second,
	}, nil
}

// answers asks for the server's health, which includes having a leader.
func (e *Etcd) answers(int) error {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get("http://" + e.Addr() + "/health")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return err
}

// Addr is where clients connect.
func (e *Etcd) Addr() string { return addr(e.port) }
