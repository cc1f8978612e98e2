package sqlite

import (
	"context"
	"os"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// handle is a holder's view of its lease.
type handle struct {
	b     *backend
	key   string
	slot  int
	owner string
	runID string
	g     backends.Grant
}

var _ backends.Liveness = (*handle)(nil)

func (h *handle) Grant() backends.Grant { return h.g }

// Files is the descriptor whose lock tells others that the holder lives; none for a lease that was attached to.
func (h *handle) Files() []*os.File { return h.b.lockFiles(h.owner) }

// mine is the lease's row, nil where it is gone or somebody else's.
func (h *handle) mine(c *conn) (*lease, error) {
	if c == nil {
		return nil, nil
	}
	rows, err := leases(c, h.key)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].owner == h.owner && rows[i].token == h.g.Token {
			return &rows[i], nil
		}
	}
	return nil, nil
}

// Renew writes over the row in place, in room that the acquire reserved.
func (h *handle) Renew(ctx context.Context, ttl time.Duration) error {
	_, err := change(ctx, h.b, "renew", changing, false, func(c *conn, now instant) (struct{}, error) {
		l, err := h.mine(c)
		if err == nil && (l == nil || !l.unexpired(now)) {
			err = backends.ErrLost
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, l.extend(c, ttl, now)
	})
	return err
}

// Release waits for the disk where the run id is marked as done: that has to be true after a power cut.
func (h *handle) Release(ctx context.Context, end backends.End) error {
	durable := end.Outcome == backends.Succeeded && h.runID != ""
	_, err := change(ctx, h.b, "release", changing, durable, func(c *conn, now instant) (struct{}, error) {
		l, err := h.mine(c)
		if err != nil {
			return struct{}{}, err
		}
		if l == nil || !l.unexpired(now) {
			return struct{}{}, h.released(c)
		}
		return struct{}{}, h.b.end(c, l, end, now)
	})
	if err == nil {
		h.b.dropLock(h.owner)
	}
	return err
}

// released is nil where a release of this lease was carried out before.
func (h *handle) released(c *conn) error {
	if c == nil {
		return backends.ErrLost
	}
	_, rec, err := findRecord(c, h.key, h.g.Token)
	if err != nil {
		return err
	}
	if rec == nil || !rec.Outcome.Released() {
		return backends.ErrLost
	}
	return nil
}

// end frees the slot, or leaves it to the minimum hold, counts, marks and records.
func (b *backend) end(c *conn, l *lease, end backends.End, now instant) error {
	k, err := loadKey(c, l.key)
	if err != nil {
		return err
	}
	rec := l.record(end.Outcome, now.wall)
	rec.ExitCode, rec.Duration, rec.Reason = end.ExitCode, &end.Duration, end.Reason
	if l.recorded {
		err = b.complete(c, &k, rec, now)
	} else {
		err = b.insertRecord(c, &k, rec, now)
	}
	if err != nil {
		return err
	}
	if err := k.count(c, l.runID, end.Outcome, now); err != nil {
		return err
	}
	if err := k.save(c); err != nil {
		return err
	}
	if end.Outcome == backends.NotStarted || !l.holding(now) {
		return l.delete(c)
	}
	_, err = c.exec(`UPDATE leases SET released=1, recorded=1 WHERE key=? AND slot=?`, l.key, l.slot)
	return err
}

// count keeps attempts and done-marks. A run that could not be started takes its attempt back.
func (k *keyRow) count(c *conn, runID string, o backends.Outcome, now instant) error {
	var err error
	switch {
	case o == backends.Succeeded:
		k.starts = 0
		if runID != "" {
			_, err = c.exec(`UPDATE runs SET done=?, at=? WHERE key=? AND run_id=?`, now.micros(), now.micros(), k.key, runID)
		}
	case o == backends.NotStarted && runID != "":
		_, err = c.exec(`UPDATE runs SET attempts=max(0, attempts-1) WHERE key=? AND run_id=?`, k.key, runID)
	case o == backends.NotStarted:
		k.starts = max(0, k.starts-1)
	}
	return err
}
