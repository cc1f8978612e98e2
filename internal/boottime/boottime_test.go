//go:build unix

package boottime

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// printNow makes this test binary print its clock and leave, so that a test can ask from another namespace.
const printNow = "LOCKRUN_TEST_BOOTTIME"

func TestMain(m *testing.M) {
	if os.Getenv(printNow) != "" {
		fmt.Println(int64(Now()), int64(Offset()), BootID())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestNowNeverGoesBack(t *testing.T) {
	last := Now()
	if last <= 0 {
		t.Fatalf("Now() = %v", last)
	}
	for range 10000 {
		now := Now()
		if now < last {
			t.Fatalf("went back from %v to %v", last, now)
		}
		last = now
	}
}

func TestNowKeepsPace(t *testing.T) {
	a, m := Now(), time.Now()
	time.Sleep(30 * time.Millisecond)
	m2 := time.Since(m)
	if d := Now() - a; d < 30*time.Millisecond || (d-m2).Abs() > time.Second {
		t.Errorf("%v passed on the boot clock, %v on Go's", d, m2)
	}
}

func TestNowIsTheHostsUptime(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no /proc/uptime on this system")
	}
	up, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(up - Raw().Seconds()); d > 5 {
		t.Errorf("%.2f s away from /proc/uptime", d)
	}
}

func TestBootIDStays(t *testing.T) {
	if runtime.GOOS == "linux" && BootID() == "" {
		t.Error("no boot id on Linux")
	}
	if readBootID() != BootID() {
		t.Error("the boot id changed")
	}
}

// Two processes of one host have to agree on a deadline even if one of them was put into a time namespace.
func TestTimeNamespaceAgrees(t *testing.T) {
	for _, shift := range []string{"864000", "-20"} {
		cmd := exec.Command("unshare", "-T", "--boottime", shift, os.Args[0])
		cmd.Env = append(os.Environ(), printNow+"=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("no time namespace may be made here: %v: %s", err, stderr.String())
		}
		var now, off int64
		var id string
		if _, err := fmt.Sscan(string(out), &now, &off, &id); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if want, _ := time.ParseDuration(shift + "s"); time.Duration(off) != want {
			t.Errorf("offset %v, want %v", time.Duration(off), want)
		}
		if d := (Now() - time.Duration(now)).Abs(); d > 10*time.Second {
			t.Errorf("shifted by %s s, the clocks differ by %v", shift, d)
		}
		if id != BootID() {
			t.Errorf("boot id %q, outside %q", id, BootID())
		}
	}
}
