//go:build unix

package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func add(f File, key string) error {
	return f.Add(context.Background(), func(s *Set) { s.Key(key).Add(&Run{Outcome: "succeeded"}) })
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSumsAreExactUnderContention(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "lockrun.prom")}
	const workers, each = 20, 25
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range each {
				if err := add(f, "key "+strconv.Itoa(w%3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	text, got := contents(t, f.Path), 0
	for w := range 3 {
		_, rest, _ := strings.Cut(text, `lockrun_runs_total{key="key `+strconv.Itoa(w)+`",outcome="succeeded"} `)
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got != workers*each {
		t.Errorf("%d runs are counted of %d", got, workers*each)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(f.Path), "*.prom"))
	if err != nil || len(left) != 1 {
		t.Errorf("the collector sees %q", left)
	}
}

func TestModeAndOwnerStay(t *testing.T) {
	dir := t.TempDir()
	f := File{filepath.Join(dir, "m.prom")}
	defer syscall.Umask(syscall.Umask(0o077))
	for _, want := range []os.FileMode{0o644, 0o640, 0o600} {
		if want != 0o644 {
			if err := os.Chmod(f.Path, want); err != nil {
				t.Fatal(err)
			}
		}
		if err := add(f, "k"); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(f.Path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("mode %v, %v, want %v", fi.Mode(), err, want)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(f.Path, 1234, 4321); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	if st, _ := owner(fi); st.Uid != 1234 || st.Gid != 4321 {
		t.Errorf("the file of 1234:4321 is now %d:%d's", st.Uid, st.Gid)
	}
}

func TestWhatIsNotOursStays(t *testing.T) {
	for name, text := range map[string]string{"foreign": "root:x:0:0\n", "damaged": `lockrun_runs_total{key="k",outcome="succ`} {
		f := File{filepath.Join(t.TempDir(), name)}
		if err := os.WriteFile(f.Path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := add(f, "k"); err == nil || !strings.Contains(err.Error(), "not lockrun's") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if got := contents(t, f.Path); got != text {
			t.Errorf("%s became %q", name, got)
		}
	}
	f := File{filepath.Join(t.TempDir(), "empty")}
	if err := os.WriteFile(f.Path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); err != nil || !strings.Contains(contents(t, f.Path), `"succeeded"} 1`) {
		t.Errorf("an empty file: %v", err)
	}
}

// Links beside the file lead nowhere, and what a killed process left behind is no obstacle.
func TestLeftoversAndLinks(t *testing.T) {
	dir := t.TempDir()
	f := File{filepath.Join(dir, "m.prom")}
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, f.beside("new")); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(f.beside("new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); err != nil || !strings.Contains(contents(t, f.Path), `"succeeded"} 2`) {
		t.Errorf("after a leftover: %v", err)
	}
	if err := errors.Join(os.Remove(f.beside("lock")), os.Symlink(victim, f.beside("lock"))); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("with a link for a lock: %v", err)
	}
	if got := contents(t, victim); got != "precious" {
		t.Errorf("a file that a link leads to became %q", got)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "m.prom")}
	unlock, err := f.lock(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Add(ctx, func(*Set) { t.Error("it was changed under another's lock") }); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("Add = %v", err)
	}
	unlock()
	if err := add(f, "k"); err != nil {
		t.Error(err)
	}
}

func TestATurnExcludesTurnsAndNotSums(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "m.prom")}
	err := f.InTurn(t.Context(), func(s *Set) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := f.InTurn(ctx, func(*Set) error { return nil }); err == nil {
			t.Error("two are in their turn")
		}
		return add(f, "k")
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "m.prom")
	err := add(File{path}, "k")
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v", err)
	}
	// It is about the file that somebody named, and not about one that they never heard of.
	if want := path + ": there is no folder " + filepath.Dir(path) + "; create it, or name another file: no such file or directory"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestTheLongestNames(t *testing.T) {
	dir := t.TempDir()
	for n := 245; n <= 255; n++ {
		f := File{filepath.Join(dir, strings.Repeat("m", n))}
		for range 2 {
			if err := add(f, "k"); err != nil {
				t.Fatalf("a name of %d bytes: %v", n, err)
			}
		}
		if err := f.InTurn(t.Context(), func(*Set) error { return nil }); err != nil {
			t.Errorf("a name of %d bytes: %v", n, err)
		}
		if text := contents(t, f.Path); !strings.Contains(text, `"succeeded"} 2`) {
			t.Errorf("a name of %d bytes: %s", n, text)
		}
	}
	if visible, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(visible) != 11 {
		t.Errorf("the collector sees %q, %v", visible, err)
	}
}

// A file that could not be read again is not written: the sums in it would be lost.
func TestTheSizeIsBounded(t *testing.T) {
	defer func(n int64) { maxFile = n }(maxFile)
	maxFile = 1 << 20
	f := File{filepath.Join(t.TempDir(), "m.prom")}
	var many strings.Builder // each of these keys takes 3 KB once its histograms are written out
	for i := range 1000 {
		fmt.Fprintf(&many, "lockrun_runs_total{key=\"%d\",outcome=\"succeeded\"} 1\n", i)
	}
	if err := os.WriteFile(f.Path, []byte(many.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	err := add(f, "k")
	if err == nil || !strings.Contains(err.Error(), f.Path+" would be larger than 1 MB with the sums of 1001 keys") {
		t.Errorf("Add = %v", err)
	}
	if contents(t, f.Path) != many.String() {
		t.Error("the file was changed")
	}
	if err := os.Truncate(f.Path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if err := add(f, "k"); err == nil || !strings.Contains(err.Error(), "is larger than 1 MB; move it away") {
		t.Errorf("Add = %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(f.Path), ".*.new")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// What was given up on does not happen later.
func TestWhatIsSaidOfALateFileIsTrue(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "m.prom")}
	if err := add(f, "k"); err != nil {
		t.Fatal(err)
	}
	before := contents(t, f.Path)
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan struct{})
	err := f.Add(ctx, func(s *Set) {
		s.Key("k").Add(&Run{Outcome: "failed"})
		cancel()
		<-said // as on a slow host, where it is only now written
	})
	if err == nil || !strings.Contains(err.Error(), "too long: the file is large") {
		t.Errorf("Add = %v", err)
	}
	close(said)
	unlock, err := f.lock(t.Context(), "lock") // when that has ended
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if after := contents(t, f.Path); after != before {
		t.Errorf("what was not kept is there:\n%s", after)
	}
}

// What happens is not given up on.
func TestAFileThatIsBeingReplaced(t *testing.T) {
	for name, ends := range map[string]bool{"soon": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var fate fate
				hang := make(chan struct{})
				err := bounded(ctx, func() error {
					if !fate.mine() {
						t.Error("it was given up on before")
					}
					cancel()
					if !ends {
						<-hang
					}
					return nil
				}, &fate)
				if close(hang); ends && err != nil || !ends && !errors.Is(err, ErrUnsure) {
					t.Errorf("it is said to have ended with %v", err)
				}
			})
		})
	}
}
