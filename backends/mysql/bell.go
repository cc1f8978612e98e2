package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// A lease has a bell: a named lock of the server (GET_LOCK) that the session which took the lease has until it releases it.
// Who waits asks for that lock and so is answered at the moment of the release, where looking alone would notice it a
// tenth of a second later.
//
// A bell is a hint and nothing else. The lock may be gone long before the lease is, with a connection that was cut; it may
// outlive it, in a session whose host is dead; a Galera node knows nothing of the others' locks and gets none. So it is
// listened to for a second at a time, what counts is the look that follows, and who hears a bell whose lease is still there
// goes on by looking. The lease's token is part of the name, so that a session that was left over keeps nobody from hearing
// the next lease's bell.
//
// Whoever is woken keeps the lock, and takes it along into the lease: those who listen to the old bell then hear the end of
// that lease too. So a release wakes one or two, and not all who wait. A session that has a bell only ever listens to one of
// a later token, so that sessions cannot wait for each other in a circle.
//
// MySQL 5.7.5 and MariaDB 10.5.2 are the first to have all that this takes: several locks a session, and a way to let go of
// them all. No right is needed.
const (
	ring = time.Second // how long listen listens; MySQL knows whole seconds only

	listen   = `SELECT GET_LOCK(CONCAT({bell}, {heard}), 1)`
	hangBell = `, IF(@lr_go, GET_LOCK(CONCAT({bell}, {new_token}), 0), 0)`
	ringBell = `, RELEASE_ALL_LOCKS()`
	hush     = `DO RELEASE_ALL_LOCKS()`
)

// hasBells tells whether a lock of this session is one for all who may wait.
func (c *conn) hasBells() bool { return !c.single }

// bell is the literal that the names of a key's bells begin with. They are names in the whole server, of at most 64 characters.
func (t tables) bell(key string) string {
	sum := sha256.Sum256([]byte(t.database + "\x00" + t.leases + "\x00" + key))
	return "'lockrun:" + hex.EncodeToString(sum[:16]) + ":'"
}

// ring ends the text of a release, in a SELECT after COMMIT.
func (c *conn) ring() string {
	if c.hasBells() {
		return ringBell
	}
	return ""
}

// letGo lets go of a bell that told nothing.
func (b *backend) letGo(ctx context.Context) {
	_ = b.do(ctx, "wait", repeatable, func(ctx context.Context, c *conn) error {
		_, err := c.exec(ctx, hush)
		return err
	})
}
