package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// examination is one Doctor at work.
type examination struct {
	b      *backend
	s      *session
	checks []backends.Check
}

// Doctor examines the servers, what sessions they grant, the chroot and its rights. It writes nothing but the node clock,
// which every operation may write.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	e := &examination{b: b}
	var err error
	if e.s, err = b.session(ctx); err == nil {
		_, err = e.s.await(ctx)
	}
	servers := e.servers(ctx)
	if err != nil {
		e.fail("session", err)
		return e.checks
	}
	for _, check := range []func(context.Context){e.chroot, e.rights, e.limits, e.quorum, e.keys} {
		check(ctx)
	}
	e.versions(servers)
	return e.checks
}

func (e *examination) add(check string, ok bool, cause, remedy string) {
	e.checks = append(e.checks, backends.Check{Backend: e.b.Name(), Check: check, OK: ok, Cause: cause, Remedy: remedy})
}

func (e *examination) fail(check string, err error) {
	remedy, _ := e.b.advise(err)
	if remedy == "" {
		remedy = upRemedy
	}
	e.add(check, false, explain(err), remedy)
}

// server is what one server tells of itself.
type server struct {
	host    string
	mode    string // leader, follower, observer, standalone; "" where it does not tell
	version string
	tick    time.Duration // 0 where it does not tell
	err     error
}

// servers asks each server for its state. The ensemble may do without one, but then the next failure is the last.
func (e *examination) servers(ctx context.Context) []server {
	hosts := e.b.c.hosts
	all := make([]server, len(hosts))
	_ = parallel(len(hosts), func(i int) error { all[i] = e.ask(ctx, hosts[i]); return nil })
	var serving, down, mute []string
	for _, s := range all {
		switch {
		case s.err != nil:
			down = append(down, s.host+": "+explainFault(s.err))
		case s.mode == "":
			mute = append(mute, s.host)
		default:
			serving = append(serving, s.host+" "+s.mode)
		}
	}
	cause := strings.Join(serving, ", ")
	switch {
	case len(down) == len(all):
		e.add("servers", false, strings.Join(down, "; "), upRemedy)
	case len(down) > 0:
		e.add("servers", true, "not all are there: "+strings.Join(down, "; "), "start them again: an ensemble lives as long as most of it does")
	case len(mute) > 0:
		e.add("servers", true, strings.Join(mute, ", ")+" answer, and do not tell their state",
			"allow the word srvr there (4lw.commands.whitelist=srvr) to have it shown here")
	case len(all) == 1:
		e.add("servers", true, cause, "one server alone is one failure away from none: consider three, and name them all in the URL")
	default:
		e.add("servers", true, cause, "")
	}
	return all
}

// ask uses the four-letter words, which servers answer without TLS only.
func (e *examination) ask(ctx context.Context, host string) server {
	s := server{host: host}
	text, err := e.word(ctx, host, "srvr")
	s.err = err
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "Mode":
			s.mode = value
		case "Zookeeper version":
			s.version, _, _ = strings.Cut(value, "-")
		}
	}
	text, _ = e.word(ctx, host, "conf")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if ms, err := strconv.Atoi(value); err == nil && name == "tickTime" {
			s.tick = time.Duration(ms) * time.Millisecond
		}
	}
	return s
}

// word sends a four-letter word. Under TLS it only looks whether somebody listens.
func (e *examination) word(ctx context.Context, host, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.s.dialBound())
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if e.b.c.tls != nil {
		return "", nil
	}
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(c, 1<<20))
	if err != nil && len(text) > 0 || backends.IsHangUp(err) {
		err = nil
	}
	return string(text), err
}

// chroot looks for the nodes that lockrun init makes.
func (e *examination) chroot(ctx context.Context) {
	for _, path := range []string{e.b.c.keysPath(), e.b.c.clockPath()} {
		n, err := e.s.exists(ctx, path)
		switch {
		case err != nil:
			e.fail("chroot", err)
			return
		case !n.found:
			e.fail("chroot", fmt.Errorf("%w: %s is missing", errNotInitialised, path))
			return
		}
	}
	e.add("chroot", true, e.b.c.root+" is there", "")
}

// rights tells who may use the nodes, and whether we may.
func (e *examination) rights(ctx context.Context) {
	acl, err := ask(ctx, e.s, func(c *zk.Conn) ([]zk.ACL, error) {
		acl, _, err := c.GetACL(e.b.c.keysPath())
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return // said already
	case errors.Is(err, zk.ErrNoAuth) && e.b.c.user == "":
		e.add("rights", false, "the nodes are closed to others", "name the user, and its password in a password_file")
		return
	case errors.Is(err, zk.ErrNoAuth):
		e.add("rights", false, "the nodes are closed to user "+e.b.c.user, "check user and password: the nodes belong to whoever ran lockrun init")
		return
	case err != nil:
		e.fail("rights", err)
		return
	}
	open := false
	for _, a := range acl {
		open = open || a.Scheme == "world" && a.Perms&(zk.PermWrite|zk.PermCreate|zk.PermDelete) != 0
	}
	switch {
	case open && e.b.c.user != "":
		e.add("rights", true, "the nodes are open to everybody, although there are credentials",
			"they were made without: setAcl -R "+e.b.c.root+" auth::cdrwa in zkCli.sh, as that user")
	case open:
		e.add("rights", true, "the nodes are open to everybody who reaches the servers",
			"give lockrun a user and run lockrun init in a new chroot, or keep the servers in a network of their own")
	default:
		e.add("rights", true, "the nodes are closed to others", "")
	}
}

// limits tells how long a session, and so a lease, may be.
func (e *examination) limits(ctx context.Context) {
	kept, err := e.b.longestSession(ctx)
	if err != nil {
		e.fail("session length", err)
		return
	}
	most := grantable(longestSession, kept)
	cause := fmt.Sprintf("the servers keep a session for at most %v, so a lease for at most %v", kept, most)
	remedy := ""
	if most < time.Minute {
		remedy = fmt.Sprintf("a longer --ttl, like the usual minute, is shortened to %v; raise maxSessionTimeout on all servers (20 ticks if not set) where that is too short", most)
	}
	e.add("session length", true, cause, remedy)
}

// longestSession finds out how long a session may be, by asking for one that is too long: words that would tell are often
// not allowed.
func (b *backend) longestSession(ctx context.Context) (time.Duration, error) {
	long, err := newSession(b.c, longestSession, nil)
	if err != nil {
		return 0, err
	}
	defer long.close(false)
	if _, err := long.await(ctx); err != nil {
		return 0, err
	}
	return long.limit(), nil
}

// LongestTTL is what the longest session can keep; see backends.Limiter.
func (b *backend) LongestTTL(ctx context.Context) (time.Duration, error) {
	kept, err := b.longestSession(ctx)
	if err != nil {
		return 0, b.fail(ctx, "ask how long a lease may be", err)
	}
	return grantable(longestSession, kept), nil
}

// quorum measures a write, which needs most of the servers.
func (e *examination) quorum(ctx context.Context) {
	start := time.Now()
	_, err := ask(ctx, e.s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(e.b.c.clockPath(), nil, -1) })
	took := time.Since(start)
	switch {
	case errors.Is(err, zk.ErrNoNode):
	case errors.Is(err, zk.ErrNoAuth):
		e.add("quorum", true, "a write was not allowed, so it was not measured", "asking commands need no right to write; lockrun run does")
	case err != nil:
		e.fail("quorum", err)
	case took > e.b.c.timeout/5:
		e.add("quorum", true, fmt.Sprintf("a write took %v", took.Round(time.Millisecond)), "give the servers a disk of their own for their log (dataLogDir), or raise --backend-timeout")
	default:
		e.add("quorum", true, fmt.Sprintf("a write took %v", took.Round(10*time.Microsecond)), "")
	}
}

// usualTick is what the length of sessions allows for; see lag.
const usualTick = 2 * time.Second

// versions tells what the servers can do that is not used by every run.
func (e *examination) versions(all []server) {
	for _, s := range all {
		if s.version == "" {
			continue
		}
		switch {
		case older(s.version, 3, 4, 0):
			e.add("version", false, s.host+" has version "+s.version+", which has no transactions", "update it to 3.5 or later")
		case older(s.version, 3, 5, 3):
			e.add("containers", true, s.host+" has version "+s.version+", which has no container nodes",
				"an empty node stays under each key that was waited for; update to 3.5.3 or later to have it taken away")
		default:
			e.add("containers", true, s.host+" has version "+s.version+" and takes empty queues away", "")
		}
		if s.tick > usualTick {
			e.add("tick", true, fmt.Sprintf("%s ticks every %v", s.host, s.tick),
				fmt.Sprintf("a follower may tell the leader of a beat %v late, and a lease allows for a second of that: set tickTime to 2000 or less", s.tick/2))
		}
	}
}

// older compares versions like "3.8.0".
func older(version string, than ...int) bool {
	parts := strings.Split(version, ".")
	for i, n := range than {
		if i >= len(parts) {
			return true
		}
		if v, err := strconv.Atoi(parts[i]); err != nil || v != n {
			return err == nil && v < n
		}
	}
	return false
}
