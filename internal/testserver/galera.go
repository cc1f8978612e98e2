package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Galera is a cluster of three MariaDB servers. A node that is killed is shut out after 1.5 s; tighter times split a busy
// cluster for good.
type Galera struct {
	Nodes []*MariaDB
}

const newCluster = "--wsrep-new-cluster"

// StartGalera starts the cluster and returns when all nodes are in step, after some 7 s: they join one by one.
func StartGalera(t TB, config MariaDBConfig) *Galera {
	t.Helper()
	Need(t, "mariadbd", "mariadb-install-db", "libgalera_smm.so", "rsync")
	nodes, err := galeraPorts(3)
	if err != nil {
		t.Fatalf("%v", err)
	}
	g := &Galera{}
	for i := range nodes {
		c := config
		c.member = true
		c.Args = append(galeraArgs(nodes, i), config.Args...)
		if i == 0 {
			c.Args = append(c.Args, newCluster)
		}
		g.Nodes = append(g.Nodes, startMariaDB(t, c, galeraTemplate))
	}
	// A first node that is started again must join the others, not found a cluster of its own.
	first := &g.Nodes[0].spec
	first.argv = slices.DeleteFunc(first.argv, func(a string) bool { return a == newCluster })
	return g
}

// galeraPort are the ports of one node for the others.
type galeraPort struct{ group, ist, sst int }

func galeraPorts(n int) ([]galeraPort, error) {
	nodes := make([]galeraPort, n)
	for i := range nodes {
		for _, p := range []*int{&nodes[i].group, &nodes[i].ist, &nodes[i].sst} {
			var err error
			if *p, err = freePort(); err != nil {
				return nil, err
			}
		}
	}
	return nodes, nil
}

// galeraArgs is what node i needs on its command line.
func galeraArgs(nodes []galeraPort, i int) []string {
	var group []string
	for _, n := range nodes {
		group = append(group, addr(n.group))
	}
	provider := []string{"gmcast.listen_addr=tcp://" + addr(nodes[i].group), "ist.recv_addr=" + addr(nodes[i].ist), "gcache.size=16M",
		"evs.keepalive_period=PT0.5S", "evs.suspect_timeout=PT1.5S", "evs.inactive_timeout=PT5S", "evs.install_timeout=PT5S",
		"evs.inactive_check_period=PT0.3S", "gmcast.peer_timeout=PT2S", "pc.recovery=false"}
	return []string{"--wsrep-on=ON", "--wsrep-provider=" + find("libgalera_smm.so"), "--wsrep-cluster-name=lockrun",
		"--wsrep-cluster-address=gcomm://" + strings.Join(group, ","), fmt.Sprintf("--wsrep-node-name=n%d", i+1),
		"--wsrep-node-address=" + addr(nodes[i].group), "--wsrep-sst-receive-address=" + addr(nodes[i].sst), "--wsrep-sst-method=rsync",
		"--wsrep-provider-options=" + strings.Join(provider, ";"),
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--default-storage-engine=InnoDB"}
}

// galeraTemplate is the data of a server that has been a cluster by itself. Nodes that start from it have one history, so
// that joining takes what is new (3 s a node) instead of a copy of everything (7 to 13 s).
var galeraTemplate = sync.OnceValues(func() (string, error) {
	source, err := mariadbTemplate()
	if err != nil {
		return "", err
	}
	return cached("galera", func(dir string) error { return foundCluster(source, dir) })
})

// foundCluster runs one node once, in dir/data.
func foundCluster(source, dir string) error {
	nodes, err := galeraPorts(1)
	if err != nil {
		return err
	}
	m := &MariaDB{dir: dir, config: MariaDBConfig{member: true, Args: append(galeraArgs(nodes, 0), newCluster)}}
	if err := m.fill(source); err != nil {
		return err
	}
	if err := m.connect(); err != nil {
		return err
	}
	defer m.db.Close()
	for range 5 {
		s, err := m.choose(source)
		if err != nil {
			return err
		}
		p := &Process{spec: s}
		err = p.start()
		p.quit()
		if err == nil || !errors.Is(err, errInUse) {
			return errors.Join(err, forgetNode(m.data()))
		}
	}
	return errInUse
}

// forgetNode takes away what belongs to one node, and what is large.
func forgetNode(data string) error {
	state, err := os.ReadFile(filepath.Join(data, "grastate.dat"))
	if err != nil {
		return err
	}
	if strings.Contains(string(state), "seqno:   -1") {
		return fmt.Errorf("the server did not end in order at %s: %s", time.Now().Format(time.TimeOnly), state)
	}
	for _, name := range []string{"galera.cache", "gvwstate.dat"} {
		if err := os.RemoveAll(filepath.Join(data, name)); err != nil {
			return err
		}
	}
	return nil
}
