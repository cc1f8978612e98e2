package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages tells where the programs come from on Debian, for messages. scripts/install-test-needs has the same list.
var packages = map[string]string{
	"redis-server":       "redis-server",
	"redis-sentinel":     "redis-sentinel",
	"redis-benchmark":    "redis-tools",
	"redis-cli":          "redis-tools",
	"mariadbd":           "mariadb-server",
	"mariadb-install-db": "mariadb-server",
	"libgalera_smm.so":   "galera-4",
	"rsync":              "rsync",
	"etcd":               "etcd-server",
	"etcdctl":            "etcd-client",
	"libfaketime.so.1":   "faketime",
	"java":               "default-jre-headless",
	"mvn":                "maven",
	"zookeeper.jar":      "zookeeper",
	"promtool":           "prometheus",
	"prometheus":         "prometheus",

	"prometheus-pushgateway": "prometheus-pushgateway",

	"cloud-firestore-emulator.jar": "google-cloud-cli-firestore-emulator",
}

// folders are searched beside PATH: Debian keeps daemons out of users' paths, and libraries are no programs.
var folders = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin",
	"/usr/lib/galera", "/usr/lib64/galera-4", "/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime", "/usr/share/java",
	"/usr/lib/google-cloud-sdk/platform/cloud-firestore-emulator"}

// Need skips the test, visibly, when one of the programs is missing here. Where LOCKRUN_TEST_REQUIRE, a list with commas,
// names the program or its Debian package, a missing one fails the test instead: a skip must not hide where a backend
// has to be tested. Servers are for full runs only, so that under -short, too, the test is skipped.
func Need(t TB, programs ...string) {
	t.Helper()
	notShort(t, strings.Join(programs, ", "))
	for _, p := range programs {
		if find(p) != "" {
			continue
		}
		if required(p) {
			t.Fatalf("%s is required here (LOCKRUN_TEST_REQUIRE), but missing: apt-get install %s", p, packages[p])
		}
		t.Skipf("%s is missing here: apt-get install %s", p, packages[p])
	}
}

// notShort skips the test under -short.
func notShort(t TB, what string) {
	t.Helper()
	// A program that measures has no flags of package testing to ask.
	if testing.Testing() && testing.Short() {
		t.Skipf("needs %s, which -short leaves out", what)
	}
}

// find gives the path of a program or library, or "".
func find(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, dir := range folders {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && !info.IsDir() {
			return p
		}
	}
	return ""
}

func required(program string) bool {
	list := strings.Split(os.Getenv("LOCKRUN_TEST_REQUIRE"), ",")
	return slices.Contains(list, program) || packages[program] != "" && slices.Contains(list, packages[program])
}
