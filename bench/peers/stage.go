package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// stage is where one measure is taken, with a folder of its own.
type stage struct {
	*measure.Stage
	dir string
}

// perform takes one measure.
func perform(take func(*stage)) error {
	return measure.Perform(func(m *measure.Stage) {
		dir, err := os.MkdirTemp("", "lockrun-peers-")
		must(err)
		m.Cleanup(func() { os.RemoveAll(dir) })
		take(&stage{m, dir})
	})
}

// must ends the measure on an error.
func must(err error) { measure.Must(err) }

// errNoMeasure says that what ran was not what should be measured.
var errNoMeasure = measure.ErrNoMeasure

func median(d []time.Duration) time.Duration { return measure.Median(d) }

// program is the path of a program that has to be there.
func program(name string) string {
	path, err := exec.LookPath(name)
	must(err)
	return path
}

// jvm is the beginning of a command line that runs jvm/Peer.java, whose libraries are fetched once. The options are those
// that make a JVM start soon, since that is to its advantage here.
func (s *stage) jvm() []string {
	cache, err := os.UserCacheDir()
	must(err)
	lib := filepath.Join(cache, "lockrun-test", "peers")
	if found, _ := filepath.Glob(filepath.Join(lib, "curator-recipes-*.jar")); len(found) == 0 {
		run(program("mvn"), "-q", "-B", "-f", "bench/peers/jvm/pom.xml", "dependency:copy-dependencies",
			"-DoutputDirectory="+lib, "-DincludeScope=runtime")
	}
	classes, jars := filepath.Join(s.dir, "classes"), filepath.Join(lib, "*")
	run(program("javac"), "-cp", jars, "-d", classes, "bench/peers/jvm/Peer.java")
	return []string{program("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-cp", jars + ":" + classes, "Peer"}
}

// run runs a command that has to succeed.
func run(argv ...string) {
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		must(fmt.Errorf("%q: %w: %s", argv, err, out))
	}
}
