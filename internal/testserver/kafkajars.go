package testserver

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// KafkaVersion is the version of Kafka that is tested with unless LOCKRUN_TEST_KAFKA or a test names another.
const KafkaVersion = "4.1.1"

// The JVM's options: the small compiler and collector start soonest, and a broker for tests needs no more memory.
var javaOptions = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
	"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

// kafkaPOM asks Maven for the broker, its command-line tools and a logger that prints.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lockrun</groupId><artifactId>testserver</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// kafkaInstall is one version of Kafka on this machine, in the user's cache.
type kafkaInstall struct{ dir string }

// kafka gives the version of Kafka that a test wants, and fetches it from Maven's repository when it is not there. It skips
// the test, visibly, where Java is missing, or Maven while it is needed.
func kafka(t TB, version string) *kafkaInstall {
	t.Helper()
	Need(t, "java")
	if version == "" {
		version = os.Getenv("LOCKRUN_TEST_KAFKA")
	}
	if version == "" {
		version = KafkaVersion
	}
	root, err := cacheRoot()
	if err != nil {
		t.Fatalf("no folder for Kafka: %v", err)
	}
	k := &kafkaInstall{filepath.Join(root, "kafka-"+version+"-"+kafkaRevision)}
	if _, err := os.Stat(k.dir); err == nil {
		return k
	}
	Need(t, "mvn")
	err = once(k.dir, func(dir string) error { return fetchKafka(dir, version) })
	switch {
	case err != nil && required("kafka"):
		t.Fatalf("Kafka %s is required here (LOCKRUN_TEST_REQUIRE), but cannot be fetched: %v", version, err)
	case err != nil:
		t.Skipf("Kafka %s cannot be fetched: %v", version, err)
	}
	return k
}

// kafkaRevision is changed with whatever the folder is made by.
const kafkaRevision = "1"

// cacheRoot is the folder for what is made or fetched once a machine.
func cacheRoot() (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		root = filepath.Join(os.TempDir(), "lockrun-cache-"+strconv.Itoa(os.Getuid()))
	}
	root = filepath.Join(root, "lockrun-testserver")
	return root, os.MkdirAll(root, 0o755)
}

// once lets build fill a folder beside path and moves it there in one step. Many processes may ask at once: one builds, the
// others wait.
func once(path string, build func(dir string) error) error {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	next := path + ".new"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := os.MkdirAll(next, 0o755); err != nil {
		return err
	}
	if err := build(next); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func fetchKafka(dir, version string) error {
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, []byte(strings.ReplaceAll(kafkaPOM, "VERSION", version)), 0o644); err != nil {
		return err
	}
	out, err := output(exec.Command(find("mvn"), "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "lib")))
	if err != nil {
		return fmt.Errorf("mvn: %w: %s", err, tail(out, 5))
	}
	return nil
}

// classPath names each jar: the archive of classes is good for this very list, and the order of a wildcard is nobody's.
func (k *kafkaInstall) classPath() string {
	jars, _ := filepath.Glob(filepath.Join(k.dir, "lib", "*.jar"))
	slices.Sort(jars)
	return strings.Join(jars, string(os.PathListSeparator))
}

// java is the command line of one of Kafka's programs.
func (k *kafkaInstall) java(options []string, class string, args ...string) []string {
	argv := append([]string{find("java")}, javaOptions...)
	argv = append(argv, options...)
	if archive := k.archive(); archive != "" {
		argv = append(argv, "-XX:SharedArchiveFile="+archive)
	}
	argv = append(argv, "-cp", k.classPath(), class)
	return append(argv, args...)
}

// archive is the file with the classes that a broker loads, as the JVM wants them in memory: with it a broker is ready in
// two thirds of the time and half the work. "" where it has not been made; see makeArchive.
func (k *kafkaInstall) archive() string {
	file := filepath.Join(k.dir, "classes-"+runtime.GOARCH)
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return filepath.Join(file, "jsa")
}

// makeArchive runs a broker once to learn which classes it loads. A JVM that cannot is no error: brokers just start slower.
func (k *kafkaInstall) makeArchive() error {
	folder := filepath.Join(k.dir, "classes-"+runtime.GOARCH)
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	return once(folder, func(dir string) error {
		archive := filepath.Join(dir, "jsa")
		root := filepath.Join(dir, "broker")
		defer os.RemoveAll(root)
		n, err := k.newNodes(root, 1, KafkaConfig{java: []string{"-XX:ArchiveClassesAtExit=" + archive}})
		if err != nil {
			return err
		}
		p := &Process{spec: n[0].spec()}
		if err := p.start(); err != nil {
			p.end()
			return err
		}
		p.quit()
		return nil
	})
}

// format gives the bootstrap file of an empty broker with these users, which takes a JVM the best part of a second to make,
// and so is kept.
func (k *kafkaInstall) format(users map[string]string) (string, error) {
	var scram []string
	for user, password := range users {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			scram = append(scram, fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, user, password))
		}
	}
	slices.Sort(scram)
	sum := sha256.Sum256([]byte(strings.Join(scram, "\n")))
	folder := filepath.Join(k.dir, fmt.Sprintf("format-%x", sum[:6]))
	file := filepath.Join(folder, "data", bootstrapFile)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, once(folder, func(dir string) error { return k.formatInto(dir, scram) })
}

const bootstrapFile = "bootstrap.checkpoint"

func (k *kafkaInstall) formatInto(dir string, scram []string) error {
	conf := filepath.Join(dir, "server.properties")
	text := "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\ncontroller.listener.names=C\n" +
		"listeners=PLAINTEXT://127.0.0.1:2,C://127.0.0.1:1\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n" +
		"log.dirs=" + filepath.Join(dir, "data") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return err
	}
	args := []string{"format", "-t", kafkaID(), "-c", conf}
	for _, s := range scram {
		args = append(args, "--add-scram", s)
	}
	argv := k.java(nil, "kafka.tools.StorageTool", args...)
	if out, err := output(exec.Command(argv[0], argv[1:]...)); err != nil {
		return fmt.Errorf("formatting: %w: %s", err, tail(out, 10))
	}
	return nil
}
