package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func median[T time.Duration | float64](all []T) T { return measure.Median(all) }

// program is the path of a program that has to be there.
func program(name string) string {
	path, err := exec.LookPath(name)
	must(err)
	return path
}

// jvm is how jvm/Peer.java is run, or why it cannot be.
type jvm struct {
	prefix []string
	lib    string // the libraries' folder
	dir    string
	err    error
}

// prepareJVM fetches the libraries, once, and compiles. The options are those that make a JVM start soon, since that is to
// its advantage here.
func prepareJVM() *jvm {
	j := &jvm{}
	j.err = measure.Try(func() {
		cache, err := os.UserCacheDir()
		must(err)
		j.lib = filepath.Join(cache, "lockrun-test", "peers")
		if found, _ := filepath.Glob(filepath.Join(j.lib, "curator-recipes-*.jar")); len(found) == 0 {
			run(program("mvn"), "-q", "-B", "-f", "bench/peers/jvm/pom.xml", "dependency:copy-dependencies",
				"-DoutputDirectory="+j.lib, "-DincludeScope=runtime")
		}
		j.dir, err = os.MkdirTemp("", "lockrun-peers-jvm-")
		must(err)
		jars := filepath.Join(j.lib, "*")
		run(program("javac"), "-cp", jars, "-d", j.dir, "bench/peers/jvm/Peer.java")
		j.prefix = []string{program("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
			"-cp", jars + ":" + j.dir, "Peer"}
	})
	return j
}

func (j *jvm) remove() { os.RemoveAll(j.dir) }

// version is that of a library.
func (j *jvm) version(library string) string {
	found, _ := filepath.Glob(filepath.Join(j.lib, library+"-[0-9]*.jar"))
	if len(found) == 0 {
		return ""
	}
	return " " + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), library+"-"), ".jar")
}

// run runs a command that has to succeed.
func run(argv ...string) {
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		must(fmt.Errorf("%q: %w: %s", argv, err, out))
	}
}
