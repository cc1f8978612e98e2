package main

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

func TestThroughProxyChangesTheAddressOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("the proxy listens on a port")
	}
	p := testserver.StartProxy(t, "127.0.0.1:1")
	for url, want := range map[string]string{
		"redis://127.0.0.1:6379":              "redis://" + p.Addr(),
		"mysql://root@127.0.0.1:3306/lockrun": "mysql://root@" + p.Addr() + "/lockrun",
	} {
		st := &store{url: url, proxy: p}
		if got := st.throughProxy(); got != want {
			t.Errorf("%s becomes %s, want %s", url, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	got := arguments([]byte("*3\r\n$7\r\nEVALSHA\r\n$4\r\n\r\n$1\r\n$0\r\n\r\n"))
	if want := []string{"EVALSHA", "\r\n$1", ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("arguments = %q, want %q", got, want)
	}
	ping, script := []byte("*1\r\n$4\r\nPING\r\n"), []byte("*1\r\n$7\r\nevalsha\r\n")
	if got := (&redisReplay{}).find([][]byte{ping, script}); len(got) != 1 || string(got[0]) != string(script) {
		t.Errorf("%q are taken for lease operations", got)
	}
	if err := caught(func() { one([][]byte{script, script}) }); !errors.Is(err, errNoMeasure) {
		t.Errorf("two requests where one is measured: %v", err)
	}
}

func TestStatementIsFoundAmongPackets(t *testing.T) {
	m := &mysqlReplay{}
	got := m.find([][]byte{{9, 0, 0, 0, comQuery, 'S', 'E', 'T'}, {1, 0, 0, 0, 1}})
	if len(got) != 1 || string(got[0]) != "SET" {
		t.Errorf("found %q", got)
	}
}

func TestDriverLines(t *testing.T) {
	const source = `import (
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/sqlite"
)
	"redis+sentinel": redis.Open,
	"sqlite": sqlite.Open,
// mysql is mentioned here
`
	const want = `import (
	"github.com/lockrun/lockrun/backends/sqlite"
)
	"sqlite": sqlite.Open,
// mysql is mentioned here
`
	if got := driverLine.ReplaceAllString(source, ""); got != want {
		t.Errorf("what is left is %s", got)
	}
}

func TestKeepOnCountsAndReportsErrors(t *testing.T) {
	rate := keepOn(4, 50*time.Millisecond, func(int) error { time.Sleep(time.Millisecond); return nil })
	if rate <= 0 || rate > 4000 {
		t.Errorf("four that take 1 ms each do %.0f a second", rate)
	}
	want := errors.New("no")
	err := caught(func() {
		keepOn(2, time.Hour, func(int) error { return want })
	})
	if !errors.Is(err, want) {
		t.Errorf("an error ends in %v", err)
	}
}

// caught gives the error that ended a measure.
func caught(f func()) error {
	return perform(func(*stage) []row { f(); return nil })
}
