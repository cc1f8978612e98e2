package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

// advice is what to do about an error, and whether asking again is useless.
type advice struct {
	prefix    string // of the server's answer
	remedy    string
	permanent bool
}

const docs = "see docs/backends/redis.md"

// answers is what servers say, in the order of comparison.
var answers = []advice{
	{"WRONGPASS", "check user and password", true},
	{"NOAUTH", "the server wants a password: give one in the URL or by password_file", true},
	{"AUTH <password> called without any password configured", "the server has no password: leave it out of the URL", true},
	{"Client sent AUTH, but no password is set", "the server has no password: leave it out of the URL", true},
	{"invalid password", "check the password", true},
	{"DENIED Redis is running in protected mode", "set a password, or bind the server to addresses that may reach it", true},
	{"NOPERM", "give the user the rights of lockrun, " + docs, true},
	{"The user executing the script can't", "give the user the rights of lockrun, " + docs, true}, // Redis before 7.2
	{"ACL failure in script", "give the user the rights of lockrun, " + docs, true},               // Valkey
	{"DB index is out of range", "use a smaller number of the database in the URL", true},
	{"invalid DB index", "use a smaller number of the database in the URL", true},
	{"SELECT is not allowed in cluster mode", "leave the number of the database out of the URL", true},
	{"This instance has cluster support disabled", "it is a single server: use redis://", true},
	{"unknown command", "is it a Redis server of 6.2 or later, and the right port?", true},
	{"WRONGTYPE", "another program uses this name: choose another key or another ?prefix=", true},
	{"LOCKRUNFOREIGN", "another program uses this name, or a newer lockrun wrote it: choose another key or another ?prefix=", true},
	{"MOVED", "it is a node of a cluster: use redis+cluster://", false},
	{"READONLY", "the server is a replica: name its master, or use redis+sentinel://", false},
	{"CLUSTERDOWN", "the cluster has no majority or no node for this slot: look at CLUSTER INFO", false},
	{"MASTERDOWN", "the replica has lost its master", false},
	{"LOADING", "the server is loading its data: wait", false},
	{"MISCONF", "the server cannot save to disk and refuses writes: look at its log and its disk", false},
	{"OOM", "the server is full: raise maxmemory", false},
	{"NOREPLICAS", "the master has too few good replicas: look at INFO replication", false},
	{"BUSY", "a script of another program blocks the server", false},
	{"max number of clients reached", "raise maxclients of the server", false},
	{"No such master", "check the master's name in the path of the URL", true},
}

// sentinelAnswers are what Sentinels say, which have users and passwords of their own.
var sentinelAnswers = []advice{
	{"WRONGPASS", "check sentinel_user and sentinel_password_file", true},
	{"NOAUTH", "the Sentinels want a password: give one by sentinel_password_file", true},
	{"AUTH <password> called without any password configured", "the Sentinels have no password: leave sentinel_password_file out", true},
	{"NOPERM", "give the Sentinels' user +sentinel|get-master-addr-by-name, " + docs, true},
	{"unknown command", "it is no Sentinel: name the Sentinels with their port, or use redis://", true},
}

// explain makes an error of the contract out of whatever went wrong: one line with host, phase, cause and remedy, and
// without the password, which a server may echo.
func (c *config) explain(op, name string, err error) error {
	var usage *backends.UsageError
	var done *backends.Error
	if err == nil || errors.As(err, &done) || errors.As(err, &usage) {
		return err
	}
	e := &backends.Error{Op: op, Backend: name}
	text := c.scrub(err.Error())
	e.Remedy, e.Permanent = c.advise(err)
	e.Err = backends.InWords(text, err)
	return e
}

// scrub takes secrets and line breaks out.
func (c *config) scrub(text string) string {
	for _, secret := range []string{c.password, c.sentinelPassword} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// advise finds the remedy.
func (c *config) advise(err error) (remedy string, permanent bool) {
	var reply serverError
	switch {
	case errors.Is(err, errNoMaster):
		return "check the master's name in the path of the URL", true
	case errors.Is(err, errNotRedis):
		return "check host and port", true
	case errors.Is(err, errReplicas):
		return "look at the replicas, or ask for fewer by wait_replicas", false
	case errors.As(err, &reply), isReply(err):
		remedy, permanent = c.adviseReply(err)
		return remedy, permanent || movedTo(err) != "" && c.scheme != "redis+cluster"
	}
	var p *phaseError
	if !errors.As(err, &p) {
		return "", false
	}
	return c.advisePhase(p)
}

// replyText is what the server said.
func replyText(err error) string {
	var reply serverError
	if errors.As(err, &reply) {
		return unwrapped(string(reply))
	}
	var r goredis.Error
	if errors.As(err, &r) {
		return unwrapped(r.Error())
	}
	return err.Error()
}

// unwrapped takes off what Redis puts around an error inside a script. Redis 6 does it in front of the word that tells its kind:
// "ERR Error running script (call to f_...): @user_script:158: -READONLY You can't write against a read only replica.", and
// Redis 7 behind: " script: 9c6e..., on @user_script:158.".
func unwrapped(text string) string {
	i := strings.LastIndex(text, "@user_script:")
	if j := strings.LastIndex(text, " script: "); j >= 0 && j < i {
		return text[:j]
	}
	if i < 0 || !strings.HasPrefix(text, "ERR Error running script") {
		return text
	}
	inner := strings.TrimLeft(text[i+len("@user_script:"):], " 0123456789")
	return strings.TrimPrefix(strings.TrimPrefix(inner, ": "), "-")
}

// says tells whether the server's answer begins with one of the words.
func says(err error, words ...string) bool {
	if !isReply(err) {
		return false
	}
	text := replyText(err)
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(text, w) })
}

func (c *config) adviseReply(err error) (remedy string, permanent bool) {
	text, list := replyText(err), answers
	var p *phaseError
	if c.scheme == "redis+sentinel" && errors.As(err, &p) && slices.Contains(c.addrs, p.addr) {
		list = slices.Concat(sentinelAnswers, answers)
	}
	for _, a := range list {
		if strings.HasPrefix(text, a.prefix) || strings.HasPrefix(text, "ERR "+a.prefix) {
			return a.remedy, a.permanent
		}
	}
	return docs, false
}

// advisePhase is advice about failures to get an answer at all.
func (c *config) advisePhase(p *phaseError) (remedy string, permanent bool) {
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.As(p.err, &record):
		return "there is no TLS on that port: use redis://, or the server's TLS port", true
	case backends.IsCertificate(p.err):
		return "check ca and server_name of the URL, and the server's certificate", true
	case strings.Contains(p.err.Error(), "tls:"):
		return "check cert and key of the URL, and the server's TLS settings", true
	case errors.As(p.err, &dns) && dns.IsNotFound:
		return "check the host's name", true
	case errors.Is(p.err, syscall.ENOENT), errors.Is(p.err, syscall.EACCES):
		return "check the path of the socket and its rights", true
	case errors.Is(p.err, syscall.ECONNREFUSED):
		return "is the server running there?", false
	case errors.Is(p.err, syscall.EHOSTUNREACH), errors.Is(p.err, syscall.ENETUNREACH):
		return "there is no way to that host from here: check address, network and firewall", false
	case p.phase == "TLS with" && errors.Is(p.err, context.DeadlineExceeded):
		return "is there TLS on that port, and is the server alive?", false
	case errors.Is(p.err, context.DeadlineExceeded), errors.Is(p.err, os.ErrDeadlineExceeded):
		return "is the server alive, and the network open? --backend-timeout bounds the wait", false
	case p.phase == "log in to" && backends.IsHangUp(p.err) && c.tls == nil:
		return "the server hung up: does that port want TLS (rediss://)?", false
	case p.phase == "log in to" && backends.IsHangUp(p.err):
		return "the server hung up right after TLS: does it want a client certificate? check cert and key of the URL", false
	case p.phase == "TLS with" && backends.IsHangUp(p.err):
		return "the server hung up: is there TLS on that port?", false
	}
	return "", false
}

// answer is the error of a reply that no script gives: a bug, or another server's invention.
func (n *node) odd(op string, v []any) error {
	return &backends.Error{Op: op, Backend: n.name, Err: fmt.Errorf("%w: %.60q", errOdd, fmt.Sprint(v...)), Remedy: docs}
}
