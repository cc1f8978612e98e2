package sqlite

import (
	"cmp"
	"database/sql/driver"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lease is a row of leases: a slot that is taken, or was until its holder died or its time ran out.
type lease struct {
	key               string
	slot              int
	owner             string
	token             int64
	holder, host      string
	pid               int
	runID             string
	attempt           int
	waited, ttl       time.Duration
	takeover          bool
	live              int64 // number of the file in which the holder keeps a lock; 0: it keeps none
	acquired, renewed int64
	expires, hold     deadline
	released          bool // only the minimum hold keeps the slot
	recorded          bool // history has the run
	loose             bool // whoever has the token may renew and release it
}

const leaseColumns = `key, slot, owner, token, holder, host, pid, run_id, attempt, waited, ttl, takeover, live,
 acquired, renewed, expires, boot, expires_boot, hold, hold_boot, released, recorded, loose`

const leaseTypes = "TITIttitIIIIIIIITIIIIII"

func scanLease(row []driver.Value) (lease, error) {
	if err := checkTypes(row, leaseTypes); err != nil {
		return lease{}, err
	}
	n := func(i int) int64 { return get[int64](row[i]) }
	boot := text(row[16])
	return lease{
		key: text(row[0]), slot: int(n(1)), owner: text(row[2]), token: n(3), holder: text(row[4]), host: text(row[5]),
		pid: int(n(6)), runID: text(row[7]), attempt: int(n(8)), waited: time.Duration(n(9)), ttl: time.Duration(n(10)),
		takeover: n(11) != 0, live: n(12), acquired: n(13), renewed: n(14),
		expires: deadline{boot, n(17), n(15)}, hold: deadline{boot, n(19), n(18)},
		released: n(20) != 0, recorded: n(21) != 0, loose: n(22) != 0,
	}, nil
}

func (l *lease) insert(c *conn) error {
	_, err := c.exec(`INSERT OR REPLACE INTO leases (`+leaseColumns+`) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		l.key, l.slot, l.owner, l.token, l.holder, l.host, l.pid, l.runID, l.attempt, int64(l.waited), int64(l.ttl), l.takeover, l.live,
		l.acquired, l.renewed, l.expires.wall, l.expires.boot, l.expires.mono, l.hold.wall, l.hold.mono, l.released, l.recorded, l.loose)
	return err
}

func (l *lease) delete(c *conn) error {
	_, err := c.exec(`DELETE FROM leases WHERE key=? AND slot=?`, l.key, l.slot)
	return err
}

// leases returns the rows of key in the order of slots; of all keys where key is "".
func leases(c *conn, key string) ([]lease, error) {
	var all []lease
	each := func(row []driver.Value) error {
		l, err := scanLease(row)
		all = append(all, l)
		return err
	}
	sql, args := `SELECT `+leaseColumns+` FROM leases WHERE key=? ORDER BY slot`, []any{key}
	if key == "" {
		sql, args = `SELECT `+leaseColumns+` FROM leases ORDER BY key, slot`, nil
	}
	err := c.query(each, sql, args...)
	return all, err
}

// unexpired tells whether the lease's time has not run out. A remainder longer than the lease itself comes from another
// start of the host that could not be told apart by its name.
func (l *lease) unexpired(now instant) bool {
	left := l.expires.left(now)
	return !l.released && l.expires.boot == now.boot && left > 0 && left <= l.ttl
}

// valid tells whether the lease is held: in time, and by somebody who has not died.
func (b *backend) valid(l *lease, now instant) bool {
	return l.unexpired(now) && (l.live == 0 || b.watch.alive(l.owner, l.live))
}

// holding tells whether the minimum hold keeps the slot, dead or alive.
func (l *lease) holding(now instant) bool { return l.hold.wall != 0 && l.hold.left(now) > 0 }

func (b *backend) taken(l *lease, now instant) bool { return l.holding(now) || b.valid(l, now) }

// left is how long the slot stays taken unless somebody renews; valid tells whether the lease counts.
func (l *lease) left(now instant, valid bool) time.Duration {
	var d time.Duration
	if valid {
		d = l.expires.left(now)
	}
	if l.hold.wall != 0 {
		d = max(d, l.hold.left(now))
	}
	return d
}

func (l *lease) grant() backends.Grant {
	return backends.Grant{Token: l.token, Slot: l.slot, Attempt: l.attempt, AcquiredAt: fromMicros(l.acquired), TTL: l.ttl, Takeover: l.takeover}
}

func (l *lease) heldError(now instant, valid bool) *backends.HeldError {
	left := l.left(now, valid)
	reason := ""
	if !valid {
		reason = backends.MinimumHold
	}
	return l.held(reason, left, now)
}

// held names the lease's holder.
func (l *lease) held(reason string, left time.Duration, now instant) *backends.HeldError {
	return &backends.HeldError{Key: l.key, Holder: l.holder, Host: l.host, PID: l.pid, Token: l.token,
		Since: fromMicros(l.acquired), Until: until(now, left), Left: left, Reason: reason}
}

func until(now instant, left time.Duration) time.Time {
	return now.wall.Add(left).Truncate(time.Microsecond)
}

// record is what history says of the lease however it ended.
func (l *lease) record(o backends.Outcome, ended time.Time) backends.Record {
	slot := l.slot
	return backends.Record{Key: l.key, RunID: l.runID, Attempt: l.attempt, Holder: l.holder, Host: l.host, PID: l.pid,
		Token: l.token, Slot: &slot, Outcome: o, StartedAt: fromMicros(l.acquired), EndedAt: ended, Waited: l.waited}
}

// crashed is the record of a lease that nobody released: it ended when its time ran out, or, if its holder died before
// that, at some moment until now.
func (l *lease) crashed(now instant) backends.Record {
	ended := now.wall.Truncate(time.Microsecond)
	if t := fromMicros(l.expires.wall); t.Before(ended) {
		ended = t
	}
	return l.record(backends.Crashed, ended)
}

// keyRow is a row of keys.
type keyRow struct {
	key            string
	known          bool // the row exists
	token          int64
	starts         int64 // without a run id, since the last success
	ended, refused int64 // numbers of the latest records
	pause          *pauseRow
}

type pauseRow struct {
	by, reason string
	at         int64
	until      deadline // wall 0: until resumed
}

const keyColumns = `key, token, starts, ended, refused, pause_by, pause_reason, paused, pause_until, pause_boot, pause_until_boot`

const keyTypes = "TIIIIttiiti"

func scanKey(row []driver.Value) (keyRow, error) {
	if err := checkTypes(row, keyTypes); err != nil {
		return keyRow{}, err
	}
	n := func(i int) int64 { return get[int64](row[i]) }
	k := keyRow{key: text(row[0]), known: true, token: n(1), starts: n(2), ended: n(3), refused: n(4)}
	if row[7] != nil {
		k.pause = &pauseRow{by: text(row[5]), reason: text(row[6]), at: n(7), until: deadline{text(row[9]), n(10), n(8)}}
	}
	return k, nil
}

func loadKey(c *conn, key string) (keyRow, error) {
	k := keyRow{key: key}
	err := c.query(func(row []driver.Value) error {
		var err error
		k, err = scanKey(row)
		return err
	}, `SELECT `+keyColumns+` FROM keys WHERE key=?`, key)
	return k, err
}

func (k *keyRow) save(c *conn) error {
	p := cmp.Or(k.pause, &pauseRow{})
	var at any
	if k.pause != nil {
		at = p.at
	}
	_, err := c.exec(`INSERT OR REPLACE INTO keys (`+keyColumns+`) VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
		k.key, k.token, k.starts, k.ended, k.refused, p.by, p.reason, at, p.until.wall, p.until.boot, p.until.mono)
	return err
}

// paused tells whether the pause still runs.
func (k *keyRow) paused(now instant) bool {
	return k.pause != nil && (k.pause.until.wall == 0 || k.pause.until.left(now) > 0)
}

func (k *keyRow) pausedError(now instant) *backends.HeldError {
	p := k.pause
	h := &backends.HeldError{Key: k.key, Holder: p.by, Since: fromMicros(p.at), Paused: true, Reason: p.reason}
	if p.until.wall != 0 {
		h.Left = p.until.left(now)
		h.Until = until(now, h.Left)
	}
	return h
}
