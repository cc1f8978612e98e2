package sqlite

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// pollEvery is how often a waiter looks: a release is seen within 50 ms, at a fraction of a per cent of a processor.
const pollEvery = 25 * time.Millisecond

// view is what a waiter saw last, so that it reads rows only after somebody has written.
type view struct {
	log     stamp
	settled bool // log was old enough when it was looked at for another write to change it visibly
	id      fileID
	rows    []lease
	key     keyRow
	done    bool // the run id that is waited for has succeeded
}

// stamp is the head of the index of the write-ahead log (-shm), twice, as SQLite keeps it: a counter of changes, sizes and
// checksums. It is what makes a commit visible to others. The log itself is written earlier, and where a commit waits for
// the disk, much earlier: whoever looks at its size or time may read the rows too soon, and then sees no change any more.
type stamp struct {
	head [96]byte
	ino  uint64
}

// index is a descriptor of the index's file. Like a pin (wal.go) it is never closed while the process lives: closing it
// would drop the locks that SQLite itself has on the file.
type index struct {
	fd int
	id fileID
}

// indexStamp reads the stamp; ok is false where there is none, or one that is just being written.
func (b *backend) indexStamp() (s stamp, ok bool) {
	id, err := statID(b.path + "-shm")
	if err != nil {
		return stamp{}, false
	}
	if b.index == nil || b.index.id != id {
		fd, err := unix.Open(b.path+"-shm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return stamp{}, false
		}
		b.index = &index{fd, id}
	}
	n, err := unix.Pread(b.index.fd, s.head[:], 0)
	s.ino = id.ino
	return s, err == nil && n == len(s.head) && [48]byte(s.head[:48]) == [48]byte(s.head[48:])
}

// Wait looks every 25 ms: whether somebody has written, at the holders' kernel locks and at the clock. It writes nothing;
// that there is a waiter shows by a kernel lock of its own.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	if l := lockByte(b.livePath(), waiterByte(r.Key, r.Owner)); l != nil {
		defer l.f.Close()
	}
	done := make(chan error, 1)
	go func() { done <- b.poll(ctx, r) }() // which may hang where the disk does, see do
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll looks until r may ask again. Between two looks it sleeps in the kernel: a Go timer, and a goroutine for each
// look, wake three threads each time, which alone is more than the 1 % of a processor that a waiter may cost.
func (b *backend) poll(ctx context.Context, r backends.Request) error {
	s, err := newSleeper(ctx)
	if err != nil {
		return b.explain("wait", err)
	}
	defer s.close()
	var v *view
	for ctx.Err() == nil {
		left, err := b.peek(ctx, r, &v)
		switch {
		case err != nil && !passing(err):
			return b.explain("wait", err)
		case err != nil:
			left = pollEvery
		case left <= 0:
			return nil
		}
		s.sleep(min(left, pollEvery))
	}
	return ctx.Err()
}

// peek returns how long r has to wait at most, 0 if it may ask again. v is what was seen before, and becomes what is.
func (b *backend) peek(ctx context.Context, r backends.Request, v **view) (time.Duration, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := b.connect(ctx, reading); err != nil {
		return 0, err
	}
	if b.c == nil {
		return 0, nil
	}
	var err error
	if *v, err = b.refresh(b.c, r, *v); err != nil {
		*v = nil
		return 0, err
	}
	return b.mustWait(r, *v), nil
}

// refresh reads the rows again if the log was written to since v, or may have been. Asking SQLite for its own counter
// (PRAGMA data_version) each time costs more than all the rest of a look.
func (b *backend) refresh(c *conn, r backends.Request, v *view) (*view, error) {
	log, settled := b.indexStamp()
	if v != nil && v.settled && v.log == log && v.id == b.id {
		return v, nil
	}
	v = &view{log: log, settled: settled, id: b.id}
	var err error
	if v.rows, err = leases(c, r.Key); err == nil {
		v.key, err = loadKey(c, r.Key)
	}
	if r.RunID != "" && err == nil {
		var at int64
		at, err = doneAt(c, r.Key, r.RunID)
		v.done = at != 0
	}
	return v, err
}

// mustWait is the time until the refusal that r would meet runs out by itself.
func (b *backend) mustWait(r backends.Request, v *view) time.Duration {
	now := b.now()
	if v.done {
		return 0
	}
	if h := b.inTheWay(v.rows, r, now); h != nil {
		return h.Left
	}
	if !v.key.paused(now) {
		return 0
	}
	if left := v.key.pausedError(now).Left; left > 0 {
		return left
	}
	return pollEvery
}
