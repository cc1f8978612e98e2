package zookeeper

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/lockrun/lockrun/internal/testserver"
)

// building is a testserver.TB that lasts as long as this process, for a server that many tests use and none of them harms:
// starting one takes longer than most tests.
type building struct {
	mu     sync.Mutex
	after  []func()
	failed bool
}

func (b *building) Helper()                           {}
func (b *building) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (b *building) Skipf(format string, args ...any)  { panic(fmt.Sprintf(format, args...)) } // Need was asked before
func (b *building) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (b *building) Failed() bool                      { return b.failed }

func (b *building) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = append(b.after, f)
}

var shared = &building{}

var startShared = sync.OnceValue(func() *testserver.ZooKeeper {
	return testserver.StartZooKeeper(shared, testserver.ZooKeeperConfig{})
})

// oneServer is a server of many tests; each has a chroot of its own there.
func oneServer(t testing.TB) *testserver.ZooKeeper {
	t.Helper()
	testserver.Need(t, "java", "zookeeper.jar")
	return startShared()
}

func TestMain(m *testing.M) {
	code := m.Run()
	shared.failed = code != 0
	for i := len(shared.after) - 1; i >= 0; i-- {
		shared.after[i]()
	}
	os.Exit(code)
}
