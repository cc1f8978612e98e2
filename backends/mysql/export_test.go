package mysql

import (
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Texts are what the nth run of a key says to the server, for measurements of the server alone.
func Texts(table string, r backends.Request, n int64) []string {
	b := &backend{t: newTables("", table), keep: backends.DefaultKeep}
	l := &lease{b: b, key: r.Key, owner: r.Owner, grant: backends.Grant{Token: n}}
	return []string{
		b.t.quickAcquire(r, b.keep, time.Now().Add(time.Hour), true), l.renew(time.Minute),
		l.release(backends.End{Outcome: backends.Succeeded}, quickRecord, quickDone) + ringBell,
	}
}

// Isolate gives b's sessions another isolation level than the one that lockrun asks for, as a pooler may.
func Isolate(b backends.Backend, level string) {
	p := &b.(*backend).pool
	p.setup = strings.Replace(p.setup, "READ COMMITTED", level, 1)
}
