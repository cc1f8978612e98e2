// Package mysql keeps leases in tables of MySQL or MariaDB.
//
// A lease is a row, and the server's clock decides: expiry is judged by UTC_TIMESTAMP(6) in the statement that changes
// the row. DATETIME(6) columns hold UTC as it is. TIMESTAMP columns would be converted by the session's time zone, and
// have no name for the hour that daylight saving skips.
//
// GET_LOCK is no lease: it is lost when an idle connection is cut, is not replicated, and is local to a Galera node. It only
// wakes those who wait; see bell.go.
//
// # One exchange an operation
//
// Acquire, renew and release are one request and one answer each. Several statements travel as one text, which begins a
// transaction and ends it, so that a lockrun that is frozen or cut off half-way can leave no transaction open, and with
// it a lock on the key. A lease is granted only when its row is seen after COMMIT was answered. Stored procedures would do
// the same, but need rights that administrators do not like to give, and a second version to keep in step.
//
// Every value goes into a statement as a number or in hexadecimal, so no character set, SQL mode or quote can change what
// a statement means, whatever the server's defaults are.
//
// # Isolation
//
// A transaction locks the row of its key first, and everything that decides is read after that, so the outcome is the
// same at every isolation level. READ COMMITTED is asked for because it takes no gap locks, over which transactions about
// different keys would deadlock. What still collides, a deadlock or a Galera node that loses the certification of its
// COMMIT, is tried again while the context lasts.
package mysql

import (
	"context"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// backend is one host's way to the store.
type backend struct {
	t    tables
	keep backends.Keep
	ears chan struct{} // those who listen to bells leave connections to the others
	pool
}

var (
	_ backends.Backend  = (*backend)(nil)
	_ backends.Initer   = (*backend)(nil)
	_ backends.Doctor   = (*backend)(nil)
	_ backends.OpenFunc = Open
)

// Open prepares the way to the store that u names and does not use the network: a server that cannot be reached shows in
// the first operation. It returns *backends.UsageError for a URL that has to be corrected, and for certificates that cannot be
// read.
func Open(_ context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	o = o.WithDefaults()
	s, err := readURL(u, o.Password)
	if err != nil {
		return nil, err
	}
	b := &backend{t: newTables(s.config.DBName, s.table), keep: o.Keep, ears: make(chan struct{}, mostOpen/2)}
	b.pool = newPool(s, o.Timeout)
	b.check = b.t.check
	return b, nil
}

// Name is the server, the database and, where it is not the usual one, the table.
func (b *backend) Name() string { return b.name }

// Now is the server's clock.
func (b *backend) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := b.do(ctx, "read the clock", repeatable, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, "SELECT UTC_TIMESTAMP(6)")
		if err == nil {
			now, err = sets.only().time(0)
		}
		return err
	})
	return now, err
}
