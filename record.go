package main

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// newRequest is what an invocation asks of its backend. Each call draws a new owner.
func newRequest(cfg *Config) backends.Request {
	host, _ := os.Hostname() // shown to people only; an unnamed host is no reason not to run
	return backends.Request{
		Key: cfg.Key, Owner: backends.NewOwner(), Holder: cfg.Holder, Host: host, PID: os.Getpid(),
		TTL: cfg.TTL, HoldAtLeast: cfg.HoldAtLeast, RunID: cfg.RunID, Slots: cfg.Slots,
	}
}

// childVars are the variables that the command is told about its lease. An empty token says that there is none.
func (r *runner) childVars() []string {
	token, slot, attempt := "", "0", ""
	if r.lease != nil {
		g := r.lease.Grant()
		token, slot, attempt = strconv.FormatInt(g.Token, 10), strconv.Itoa(g.Slot), strconv.Itoa(g.Attempt)
	}
	if r.fellBack != nil {
		token = "" // it rises with no token of the backend's
	}
	return []string{
		"LOCKRUN_KEY=" + r.req.Key, "LOCKRUN_TOKEN=" + token, "LOCKRUN_OWNER=" + r.req.Owner,
		"LOCKRUN_SLOT=" + slot, "LOCKRUN_RUN_ID=" + r.req.RunID, "LOCKRUN_ATTEMPT=" + attempt,
	}
}

// tellTaken says which lease was granted, to whoever asked to hear what goes well.
func (r *runner) tellTaken(g granted) {
	if g.lease != nil {
		r.ui.info("took token %d of %q on %s (waited %s)", g.lease.Grant().Token, r.req.Key, r.b.Name(), shortDuration(r.waited))
		if ttl := g.lease.Grant().TTL; ttl < r.req.TTL {
			r.ui.notice("%s keeps a lease for at most %s, and not for the %s of --ttl", r.b.Name(), shortDuration(ttl), shortDuration(r.req.TTL))
		}
	}
}

// tellState says what the heartbeat has met. It is called from the heartbeat and only queues a message.
func (r *runner) tellState(s leaseState, cause error) {
	switch s {
	case stateDoubtful:
		r.ui.info("a renewal was not answered, trying again until the deadline: %v", cause)
	case stateHeld:
		r.ui.info("renewals are answered again")
	case stateLost:
		if r.cfg.OnLost == "continue" {
			r.ui.warn("the lease is lost, COMMAND goes on as --on-lost continue asks: %v", cause)
			r.observeLoss(cause)
		} else {
			r.ui.info("the lease is lost, COMMAND is being stopped: %v", cause)
		}
	case stateDone:
	}
}

// recordNow is the run record as far as the run has got. Instants are those of the backend's clock where it has told
// one, and the host's else.
func (r *runner) recordNow() backends.Record {
	rec := r.record
	rec.Key, rec.RunID, rec.Holder, rec.Host, rec.PID = r.req.Key, r.req.RunID, r.req.Holder, r.req.Host, r.req.PID
	rec.Waited = r.waited
	if r.b != nil {
		rec.Backend = r.b.Name()
	}
	began := bootNow() // what StartedAt is on the boot clock
	rec.StartedAt = time.Now().UTC()
	switch {
	case r.lease != nil:
		g := r.lease.Grant()
		rec.Token, rec.Slot, rec.Attempt, rec.StartedAt, began = g.Token, &g.Slot, g.Attempt, g.AcquiredAt, r.sentAt
		if r.fellBack != nil {
			rec.Token = 0 // COMMAND was given none either
		}
	case r.started != 0: // without a lease
		rec.StartedAt, began = rec.StartedAt.Add(r.started-began), r.started
	}
	rec.EndedAt = rec.StartedAt
	if rec.Duration != nil { // which begins with COMMAND: on a busy machine, or behind a record store, long after the grant
		rec.EndedAt = rec.StartedAt.Add(cmp.Or(r.started, bootNow()) + *rec.Duration - began)
	}
	return rec
}

// recordOfLease is recordNow with the token that the lease has in its store, which is told apart by it.
func (r *runner) recordOfLease() backends.Record {
	rec := r.recordNow()
	rec.Token = r.lease.Grant().Token
	return rec
}

// report writes the result file. Failing to do so changes no code.
func (r *runner) report(code int, message string) {
	if r.cfg.ResultFile == "" {
		return
	}
	if err := writeResult(r.cfg.ResultFile, r.recordNow(), code, message); err != nil {
		r.ui.warn("the result file was not written: %v", err)
	}
}
