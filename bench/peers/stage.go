package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// stage is where one measure is taken: it lets package testserver start servers outside a test, and takes them away.
type stage struct {
	cleanups []func()
	dir      string
}

// failure is what ends a measure early.
type failure struct{ error }

// perform takes one measure.
func perform(measure func(*stage)) (err error) {
	s := &stage{}
	defer s.close()
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			err = f.error
		}
	}()
	s.dir, err = os.MkdirTemp("", "lockrun-peers-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(s.dir) })
	measure(s)
	return nil
}

// close undoes things backwards.
func (s *stage) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// must ends the measure on an error.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func (s *stage) Helper() {}

func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Skipf ends the measure as well: whoever asked for it should know that it is not there.
func (s *stage) Skipf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *stage) Failed() bool { return false }

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

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
