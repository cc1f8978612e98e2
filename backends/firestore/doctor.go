package firestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Doctor examines credentials, rights, latency and clocks. It writes nothing.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	e := &exam{b: b}
	if e.credentials(ctx) && e.roundTrip(ctx) {
		e.queries(ctx)
		e.writes(ctx)
	}
	return e.checks
}

type exam struct {
	b      *backend
	checks []backends.Check
}

func (e *exam) add(check string, ok bool, cause, remedy string) {
	e.checks = append(e.checks, backends.Check{Backend: e.b.name, Check: check, OK: ok, Cause: cause, Remedy: remedy})
}

// fail adds what went wrong with its own remedy.
func (e *exam) fail(ctx context.Context, check string, err error) {
	c := backends.Check{Backend: e.b.name, Check: check, Cause: err.Error()}
	var made *backends.Error
	if errors.As(e.b.fail(ctx, check, err), &made) {
		c.Cause, c.Remedy = made.Err.Error(), made.Remedy
	}
	if c.Remedy == "" {
		c.Remedy = docs
	}
	e.checks = append(e.checks, c)
}

func (e *exam) credentials(ctx context.Context) bool {
	who, err := e.b.tokens.who(ctx)
	if err != nil {
		e.fail(ctx, "credentials", err)
		return false
	}
	if q := e.b.tokens.quotaProject(); q != "" {
		who += ", billed to " + q
	}
	e.add("credentials", true, who, "")
	return true
}

// roundTrip takes the quickest of five reads, over the connection that the first one opened, and compares the clocks by it.
func (e *exam) roundTrip(ctx context.Context) bool {
	best, offset := time.Hour, time.Duration(0)
	for range 5 {
		sent := time.Now()
		_, now, err := e.b.client.read(ctx, e.b.names.lease("."))
		if err != nil {
			e.fail(ctx, "read", err)
			return false
		}
		if took := time.Since(sent); took < best {
			best, offset = took, now.Sub(sent.Add(took/2))
		}
	}
	e.add("read", true, "documents of "+e.b.root+" can be read", "")
	slow := ""
	if best > 200*time.Millisecond {
		slow = "choose a database in a region near this host; a --ttl of many seconds allows for it"
	}
	e.add("round trip", true, best.Round(time.Microsecond).String(), slow)
	far := ""
	if offset.Abs() > 2*time.Second {
		far = "let NTP set this host's clock: no lease depends on it, but Google refuses tokens from a clock that is minutes off"
	}
	e.add("clock", true, fmt.Sprintf("the server's clock is %v from this host's", offset.Round(time.Millisecond)), far)
	return true
}

func (e *exam) queries(ctx context.Context) {
	if _, _, err := e.b.find(ctx, "", query{Select: only(), From: []from{{e.b.names.keys()}}, Limit: 1}); err != nil {
		e.fail(ctx, "query", err)
		return
	}
	e.add("query", true, "status and history can be asked for", "")
}

// writes asks for a write whose condition cannot hold: rights are looked at first, and nothing is written.
func (e *exam) writes(ctx context.Context) {
	name := e.b.names.lease(".") + "-doctor"
	_, err := e.b.commit(ctx, []write{{Update: &document{Name: name, Fields: fields{"key": str("")}}, Current: exists()}})
	switch {
	case err == nil:
		e.add("write", false, "there is a document "+name+", which is not lockrun's", "delete it")
	case isConflict(err):
		e.add("write", true, "leases can be taken", "")
	default:
		e.fail(ctx, "write", err)
	}
}
