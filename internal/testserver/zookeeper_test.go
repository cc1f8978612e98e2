package testserver

import (
	"strings"
	"testing"
)

func TestZooKeeper(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperConfig{Lines: []string{"tickTime=300"}})
	if m := z.Mode(); m != "standalone" {
		t.Errorf("mode %q", m)
	}
	if text, err := z.Word("conf"); err != nil || !strings.Contains(text, "tickTime=300") {
		t.Errorf("conf: %s, %v", text, err)
	}
	z.Freeze()
	if text, err := z.Word("ruok"); err == nil {
		t.Errorf("a frozen server answers %q", text)
	}
	z.Thaw()
	z.Kill()
	z.Restart()
	if m := z.Mode(); m != "standalone" {
		t.Errorf("mode %q after a restart", m)
	}
	z.RestartEmpty()
	z.Stop()
	if z.Running() {
		t.Errorf("it runs after it was stopped")
	}
}

func TestEnsemble(t *testing.T) {
	e := StartEnsemble(t, 3, ZooKeeperConfig{})
	old := e.Leader()
	if n := len(e.Followers()); n != 2 {
		t.Errorf("%d followers", n)
	}
	old.Kill()
	e.Await(2)
	if e.Leader() == old {
		t.Errorf("the leader was killed and leads")
	}
	old.Restart()
	e.Await(3)
	if strings.Count(e.URL("/c"), "127.0.0.1:") != 3 || !strings.HasSuffix(e.URL("/c"), "/c") {
		t.Errorf("URL %s", e.URL("/c"))
	}
}

func TestZooKeeperTLS(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperConfig{TLS: NewCerts(t), Mutual: true})
	if !strings.Contains(z.URL("/c"), "tls=true") || z.Mode() != "standalone" {
		t.Errorf("URL %s", z.URL("/c"))
	}
}
