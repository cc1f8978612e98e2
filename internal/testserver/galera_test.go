package testserver

import (
	"errors"
	"testing"
)

func TestGaleraReplicatesAndSurvivesANode(t *testing.T) {
	t.Parallel()
	g := StartGalera(t, MariaDBConfig{})
	g.Nodes[0].Exec("CREATE TABLE t (i INT PRIMARY KEY)")
	// Another node has the table a moment later.
	await(t, "the table", func() error {
		_, err := g.Nodes[1].DB().Exec("REPLACE INTO t VALUES (1)")
		return err
	})
	count := func(m *MariaDB, want string) {
		t.Helper()
		await(t, "replication", func() error {
			var got string
			if err := m.DB().QueryRow("SELECT COUNT(*) FROM t").Scan(&got); err != nil {
				return err
			}
			if got != want {
				return errors.New("there are " + got + " rows")
			}
			return nil
		})
	}
	count(g.Nodes[2], "1")
	g.Nodes[0].Kill()
	await(t, "the others going on", func() error {
		_, err := g.Nodes[1].DB().Exec("REPLACE INTO t VALUES (2)")
		return err
	})
	g.Nodes[0].Restart()
	count(g.Nodes[0], "2")
	if got := g.Nodes[0].Query("SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'"); got != "3" {
		t.Errorf("the node that came back is in a cluster of %s", got)
	}
}
