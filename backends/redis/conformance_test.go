package redis

import (
	"testing"

	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/internal/testserver"
)

// topologies are the four ways to keep leases in Redis, each with servers that all tests of a run share.
var topologies = []struct {
	name  string
	start func(testserver.TB) string // returns the URL
}{
	{"single", func(t testserver.TB) string { return testserver.StartRedis(t, testserver.RedisConfig{}).URL() }},
	{"sentinel", func(t testserver.TB) string {
		return testserver.StartSentinels(t, testserver.SentinelConfig{}).URL()
	}},
	{"cluster", func(t testserver.TB) string {
		return testserver.StartCluster(t, 3, false, testserver.RedisConfig{}).URL()
	}},
	{"quorum", func(t testserver.TB) string { return testserver.StartQuorum(t, 3, testserver.RedisConfig{}).URL() }},
}

func TestConformance(t *testing.T) {
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			url := top.start(t)
			backendtest.Run(t, func(t *testing.T) *backendtest.Store { return newStore(t, url).suite() })
		})
	}
}
