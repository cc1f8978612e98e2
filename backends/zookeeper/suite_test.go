package zookeeper

import (
	"testing"

	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestConformance(t *testing.T) {
	for name, start := range map[string]func() func(string) string{
		"single":   func() func(string) string { return oneServer(t).URL },
		"ensemble": func() func(string) string { return testserver.StartEnsemble(t, 3, testserver.ZooKeeperConfig{}).URL },
	} {
		t.Run(name, func(t *testing.T) {
			url := start()
			backendtest.Run(t, func(t *testing.T) *backendtest.Store { return newStore(t, url(chroot())).suite() })
		})
	}
}
