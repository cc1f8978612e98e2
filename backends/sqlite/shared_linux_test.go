package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// users of a group that exists only as numbers.
var (
	group    = uint32(61000)
	alice    = &syscall.Credential{Uid: 61001, Gid: 61001, Groups: []uint32{group}}
	bob      = &syscall.Credential{Uid: 61002, Gid: 61002, Groups: []uint32{group}}
	stranger = &syscall.Credential{Uid: 61003, Gid: 61003}
)

// shared is a folder, with a copy of the test binary that all users can reach.
func shared(t *testing.T, mode fs.FileMode) (s *store, exe string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become other users")
	}
	base, err := os.MkdirTemp("", "lockrun-shared-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	exe = filepath.Join(base, "helper")
	self, err := os.ReadFile(selfPath(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "store")
	for _, err := range []error{os.Chmod(base, 0o755), os.WriteFile(exe, self, 0o755), os.Mkdir(dir, 0o700),
		os.Chown(dir, 0, int(group)), os.Chmod(dir, mode)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &store{t, linked, filepath.Join(dir, "lockrun.db")}, exe
}

func permutations[T any](all []T) [][]T {
	if len(all) <= 1 {
		return [][]T{all}
	}
	var out [][]T
	for i := range all {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		for _, p := range permutations(rest) {
			out = append(out, append([]T{all[i]}, p...))
		}
	}
	return out
}

// STO-01. The helpers' umask is 077, and each user is killed while it holds a lease before the next one comes.
func TestMembersOfAGroupShareAStore(t *testing.T) {
	root := (*syscall.Credential)(nil)
	for i, order := range permutations([]*syscall.Credential{root, alice, bob}) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s, exe := shared(t, 0o770|fs.ModeSetgid)
			for _, who := range append(order, order...) {
				p := s.startAs(who, exe, "hold", "k", "1h")
				p.want("held")
				p.kill()
				done := s.startAs(who, exe, "once", "k")
				if got := letGo(t, []*proc{done}); got["ran"] != 1 {
					t.Fatalf("user %v: %v", who, got)
				}
			}
			for _, suffix := range []string{"", "-wal", "-shm", "-live"} {
				var st unix.Stat_t
				if err := unix.Stat(s.path+suffix, &st); err != nil {
					t.Error(err)
				} else if st.Gid != group || st.Mode&0o777 != 0o660 {
					t.Errorf("%s has group %d and mode %o", suffix, st.Gid, st.Mode&0o777)
				}
			}
			p := s.startAs(stranger, exe, "once", "k")
			p.want("ready")
			p.in.Close()
			if line := p.line(); !strings.Contains(line, "permission denied") && !strings.Contains(line, "owner") {
				t.Errorf("a stranger is told %q", line)
			}
		})
	}
}

func TestAFolderWithoutSetGroupID(t *testing.T) {
	s, exe := shared(t, 0o770)
	for _, who := range []*syscall.Credential{nil, alice, bob} {
		if got := letGo(t, []*proc{s.startAs(who, exe, "once", "k")}); got["ran"] != 1 {
			t.Fatalf("user %v: %v", who, got)
		}
	}
}

func TestAMemberIsToldWhichFileIsInTheWay(t *testing.T) {
	s, exe := shared(t, 0o770|fs.ModeSetgid)
	p := s.startAs(alice, exe, "once", "k")
	letGo(t, []*proc{p})
	for _, suffix := range []string{"-shm", "-wal", ""} {
		if err := os.Chmod(s.path+suffix, 0o600); err != nil {
			t.Fatal(err)
		}
		p := s.startAs(bob, exe, "once", "k")
		p.want("ready")
		p.in.Close()
		line := p.line()
		for _, want := range []string{s.path + suffix + " (owner 61001", "mode 0600", "chmod 660"} {
			if !strings.Contains(line, want) {
				t.Errorf("with %q closed to the group, %q does not say %q", suffix, line, want)
			}
		}
	}
}

// A reader creates nothing that would keep the members out, whatever the state that the last writer left.
func TestAReaderReadsAndLeavesNothingBehind(t *testing.T) {
	s, exe := shared(t, 0o755)
	os.Chown(filepath.Dir(s.path), int(alice.Uid), int(alice.Gid))
	for _, state := range []string{"held", "crashed", "closed by another program"} {
		p := s.startAs(alice, exe, "hold", "k", "1h")
		p.want("held")
		want := "held"
		if state != "held" {
			p.kill()
			want = "free"
		}
		want = fmt.Sprintln(want, len(s.sql("SELECT 1 FROM history"))+1-strings.Count(want, "held"))
		if state == "closed by another program" {
			s.checkpointAndDelete()
		}
		before := listFolder(t, s.path)
		reader := s.startAs(stranger, exe, "status", "k")
		if line := reader.line(); line+"\n" != want {
			t.Errorf("%s: the reader sees %q, want %s", state, line, want)
		}
		if after := listFolder(t, s.path); after != before {
			t.Errorf("%s: the reader changed\n%s\nto\n%s", state, before, after)
		}
		p.kill()
		p = s.startAs(alice, exe, "hold", "k", "1h")
		p.want("held")
		p.kill()
	}
}

// checkpointAndDelete does what the sqlite3 shell does at its end when nobody else has the database open.
func (s *store) checkpointAndDelete() {
	s.t.Helper()
	s.sql("PRAGMA wal_checkpoint(TRUNCATE)")
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(s.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
	}
}

func listFolder(t *testing.T, path string) string {
	t.Helper()
	all, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, name := range all {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintln(filepath.Base(name), st.Uid, st.Gid, st.Mode, st.Size, st.Ino)
	}
	return text
}

// STO-02
func TestAFullDisk(t *testing.T) {
	s := newStore(t, linked)
	dir := filepath.Dir(s.path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("this user may not mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })

	ballast := fill(t, dir)
	if _, err := s.tryOpen(backends.Options{}); !isFull(err) {
		t.Errorf("Open with no room = %v", err)
	}
	os.Remove(ballast)
	b := s.open(backends.Options{})
	defer b.Close()
	ballast = fill(t, dir)
	if _, err := b.Acquire(t.Context(), request("k")); !isFull(err) {
		t.Errorf("Acquire with no room = %v", err)
	}
	os.Remove(ballast)
	l, err := b.Acquire(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	for i := range 500 {
		if err := l.Renew(t.Context(), request("k").TTL); err != nil {
			t.Fatalf("renewal %d with no room: %v", i, err)
		}
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatalf("Release with no room: %v", err)
	}
	h, err := b.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Succeeded {
		t.Errorf("history %+v, %v", h, err)
	}
	if ok := s.sql("PRAGMA integrity_check"); ok[0] != "[ok]" {
		t.Errorf("integrity check: %v", ok)
	}
}

// isFull wants an unknown answer that names the cause and the folder.
func isFull(err error) bool {
	var e *backends.Error
	return errors.As(err, &e) && !e.Permanent && strings.Contains(e.Remedy, "free some space") &&
		(strings.Contains(err.Error(), "no space left") || strings.Contains(err.Error(), "full"))
}

// fill takes all the room of dir.
func fill(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size >= 1; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return name
}

func TestAReadOnlyFileSystem(t *testing.T) {
	s := newStore(t, linked)
	dir := filepath.Dir(s.path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("this user may not mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	p := s.start("hold", "k", "1h", "detached") // a process of its own, since this one would keep the file open
	p.want("held")
	p.in.Close()
	p.cmd.Wait()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := s.tryOpen(backends.Options{})
	if !backends.IsPermanent(err) || !strings.Contains(err.Error(), "mounted read-only") {
		t.Errorf("Open = %v", err)
	}
	st, err := s.open(backends.Options{ReadOnly: true}).Status(t.Context(), "k")
	if err != nil || st[0].State != backends.Held {
		t.Errorf("Status = %+v, %v", st, err)
	}
}

// A writer may begin while a reader reads the file as if it never changed.
func TestAFrozenReaderLooksAgain(t *testing.T) {
	s := newStore(t, linked)
	s.open(backends.Options{}).Close()
	s.checkpointAndDelete()
	c, err := dial(s.d, s.path, "mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	r := s.open(backends.Options{ReadOnly: true}).(*backend)
	r.disconnect()
	r.c, r.frozen = c, true // as for a user without the right to write, which root never is
	rounds := 0
	_, err = do(t.Context(), r, "status", reading, func(c *conn) (struct{}, error) {
		if rounds++; rounds == 1 {
			if _, err := s.open(backends.Options{}).Acquire(t.Context(), request("k")); err != nil {
				t.Error(err)
			}
			return struct{}{}, errDamaged // what half-written pages may look like
		}
		return struct{}{}, nil
	})
	if err != nil || rounds != 2 {
		t.Errorf("%v after %d rounds, want none after 2", err, rounds)
	}
}

// A disk that does not answer: the context ends the wait, not the operation.
func TestAHangingDiskEndsWithTheContext(t *testing.T) {
	s := newStore(t, linked)
	b := s.open(backends.Options{}).(*backend)
	hang := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	entered := make(chan struct{})
	go func() { <-entered; cancel() }()
	_, err := do(ctx, b, "renew", changing, func(*conn) (struct{}, error) {
		close(entered)
		<-hang
		return struct{}{}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the operation = %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := b.Status(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Status behind it = %v", err)
	}
	close(hang)
	if _, err := b.Status(t.Context(), "k"); err != nil {
		t.Errorf("Status after it = %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
