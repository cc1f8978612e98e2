package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

// Doctor examines every server that keeps leases: one, each master of a cluster, or each of a quorum.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	return b.node.examine(ctx)
}

// Doctor examines all servers; each shows under its own address.
func (q *quorum) Doctor(ctx context.Context) []backends.Check {
	return inParallel(q.nodes, func(n *node) []backends.Check { return n.examine(ctx) })
}

// inParallel examines several at the same time, so that a server that hangs does not use up the others' time.
func inParallel[T any](list []T, f func(T) []backends.Check) []backends.Check {
	found := make([][]backends.Check, len(list))
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Go(func() { found[i] = f(v) })
	}
	wg.Wait()
	return slices.Concat(found...)
}

// examine examines the servers behind a node.
func (n *node) examine(ctx context.Context) []backends.Check {
	ctx, cancel := n.c.bound(ctx)
	defer cancel()
	list, err := n.masters(ctx)
	if err != nil {
		return []backends.Check{n.failed("reach", "", n.c.explain("find the servers", n.name, err))}
	}
	return inParallel(list, func(s *server) []backends.Check {
		e := &exam{n: n, s: s}
		e.run(ctx)
		return e.checks
	})
}

// masters are the servers that leases are written to.
func (n *node) masters(ctx context.Context) ([]*server, error) {
	var list []*server
	seen := map[*server]bool{}
	for b := range buckets {
		s, err := n.route.pick(ctx, b)
		if err != nil {
			return nil, err
		}
		if !seen[s] {
			seen[s] = true
			list = append(list, s)
		}
	}
	return list, nil
}

func (n *node) failed(check, remedy string, err error) backends.Check {
	c := backends.Check{Backend: n.name, Check: check, Cause: err.Error(), Remedy: remedy}
	var e *backends.Error
	if errors.As(err, &e) {
		c.Cause = e.Err.Error()
		if remedy == "" {
			c.Remedy = e.Remedy
		}
	}
	return c
}

// exam is the examination of one server.
type exam struct {
	n      *node
	s      *server
	info   map[string]string
	checks []backends.Check
}

func (e *exam) run(ctx context.Context) {
	if !e.roundTrip(ctx) {
		return
	}
	e.rights(ctx)
	if e.readInfo(ctx) {
		e.version()
		e.role()
		e.eviction()
		e.persistence()
		e.replicas()
	}
}

func (e *exam) ask(ctx context.Context, f command) error {
	_, err := e.s.do(ctx, f)
	return e.n.c.explain("ask", e.n.name, at(e.s, err))
}

func (e *exam) add(check string, ok bool, cause, remedy string) {
	e.checks = append(e.checks, backends.Check{Backend: e.n.name, Check: check, OK: ok, Cause: e.s.addr + ": " + cause, Remedy: remedy})
}

func (e *exam) fail(check string, err error) { e.checks = append(e.checks, e.n.failed(check, "", err)) }

// roundTrip takes the quickest of five, over the connection that the first one opened, and compares the clocks by it.
func (e *exam) roundTrip(ctx context.Context) bool {
	best, offset := time.Hour, time.Duration(0)
	for range 5 {
		sent := time.Now()
		var there time.Time
		err := e.ask(ctx, func(ctx context.Context, c *goredis.Client) error {
			var err error
			there, err = c.Time(ctx).Result()
			return err
		})
		if err != nil {
			e.fail("reach", err)
			return false
		}
		if took := time.Since(sent); took < best {
			best, offset = took, there.Sub(sent.Add(took/2))
		}
	}
	e.add("round trip", true, best.Round(time.Microsecond).String(), advise(best > 100*time.Millisecond, "a --ttl of many seconds allows for it"))
	far := offset.Abs() > time.Second
	e.add("clock", true, fmt.Sprintf("the server's clock is %v from this host's", offset.Round(time.Millisecond)),
		advise(far, "no lease depends on it, but let NTP set both: times in history and status are the server's, and replicas take over its instants"))
	return true
}

func advise(need bool, remedy string) string {
	if need {
		return remedy
	}
	return ""
}

// rights tries each command that lockrun needs, by a dry run where the server has one, on a key of its own.
func (e *exam) rights(ctx context.Context) {
	user := e.n.c.user
	if user == "" {
		user = "default"
	}
	lease := e.n.c.names("doctor").lease
	var denied []string
	err := e.ask(ctx, func(ctx context.Context, c *goredis.Client) error {
		for _, words := range e.needed(lease) {
			answer, err := c.Do(ctx, append([]any{"ACL", "DRYRUN", user}, words...)...).Text()
			if err != nil {
				return err
			}
			if answer != "OK" {
				denied = append(denied, fmt.Sprint(words[0]))
			}
		}
		return nil
	})
	switch {
	case err != nil:
		e.add("rights", true, "user "+user+" may not ask for its own rights (ACL DRYRUN, Redis 7)", "an acquire tells")
	case len(denied) > 0:
		e.add("rights", false, "user "+user+" may not use "+strings.Join(denied, ", "), "give it what "+docs[len("see "):]+" lists")
	default:
		e.add("rights", true, "user "+user+" has every right that lockrun needs", "")
	}
}

// needed are commands as lockrun sends them, in all their kinds.
func (e *exam) needed(key string) [][]any {
	all := [][]any{{"EVALSHA", "x", 1, key}, {"EVAL", "return 1", 1, key}, {"TIME"}, {"BLPOP", key, 1}}
	for _, words := range strings.Fields("HGETALL HDEL:f HSET:f:v HGET:f ZADD:1:m ZREM:m ZSCORE:m ZRANGE:0:1 ZREVRANGE:0:1 ZRANGEBYSCORE:0:1 " +
		"ZREMRANGEBYRANK:0:1 ZREMRANGEBYSCORE:0:1 ZCARD SADD:m SMEMBERS LPUSH:v LTRIM:0:1 LRANGE:0:1 LINDEX:0 RPOP DEL EXISTS PEXPIRE:1") {
		parts := strings.Split(words, ":")
		cmd := []any{parts[0], key}
		for _, p := range parts[1:] {
			cmd = append(cmd, p)
		}
		all = append(all, cmd)
	}
	if e.n.c.replicas > 0 {
		all = append(all, []any{"WAIT", 0, 0})
	}
	if e.n.c.scheme == "redis+cluster" {
		all = append(all, []any{"CLUSTER", "SLOTS"})
	}
	return all
}

// readInfo reads INFO. A user without the right to it may well run jobs.
func (e *exam) readInfo(ctx context.Context) bool {
	var text string
	err := e.ask(ctx, func(ctx context.Context, c *goredis.Client) error {
		var err error
		text, err = c.Info(ctx).Result()
		return err
	})
	if err != nil {
		e.add("server", true, "INFO cannot be read, so version, eviction, persistence and replicas are not checked",
			"give the user +info to have them checked")
		return false
	}
	e.info = map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			e.info[name] = value
		}
	}
	return true
}

func (e *exam) number(name string) int {
	n, _ := strconv.Atoi(e.info[name])
	return n
}

func (e *exam) version() {
	name, v := "Redis", e.info["redis_version"]
	if valkey := e.info["valkey_version"]; valkey != "" {
		name, v = "Valkey", valkey
	}
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	old := a < 6 || a == 6 && b < 2
	e.add("version", !old, name+" "+v, advise(old, "lockrun needs 6.2 or later"))
}

func (e *exam) role() {
	role := e.info["role"]
	e.add("role", role == "master", "it is a "+role, advise(role != "master", "name the master in the URL, or use redis+sentinel://"))
}

func (e *exam) eviction() {
	policy, limit := e.info["maxmemory_policy"], e.number("maxmemory")
	cause := "maxmemory-policy is " + policy
	if limit == 0 {
		e.add("eviction", true, cause+", and memory has no limit", "")
		return
	}
	all := strings.HasPrefix(policy, "allkeys-")
	e.add("eviction", !all, cause, advise(all, "set maxmemory-policy noeviction or one of volatile-*: allkeys-* evicts leases while they are held, and done-marks"))
	used := e.number("used_memory")
	if full := used > limit/10*9; full {
		e.add("memory", policy != "noeviction" || used < limit, fmt.Sprintf("%d of %d bytes are used", used, limit), "raise maxmemory: a full server refuses leases")
	}
}

func (e *exam) persistence() {
	aof := e.info["aof_enabled"] == "1"
	failed := e.info["rdb_last_bgsave_status"] == "err" || aof && e.info["aof_last_write_status"] == "err"
	switch {
	case failed:
		e.add("persistence", false, "the server's last write to disk failed", "look at its log and its disk; by default it refuses writes until then")
	case aof:
		e.add("persistence", true, "AOF is on", "")
	default:
		e.add("persistence", true, "AOF is off: after a crash the server comes back without the newest leases, done-marks and history",
			"set appendonly yes; in a quorum, keep a server that lost its data away for one TTL")
	}
}

func (e *exam) replicas() {
	n, want := e.number("connected_slaves"), e.n.c.replicas
	switch {
	case n < want:
		e.add("replicas", false, fmt.Sprintf("%d are connected, and wait_replicas is %d", n, want), "look at the replicas, or lower wait_replicas: until then every acquire fails")
	case n > 0 && want == 0:
		e.add("replicas", true, fmt.Sprintf("%d are connected; replication is asynchronous, so a failover can lose the newest lease", n),
			"wait_replicas=1 makes that rarer; redis+quorum:// or --record closes the gap")
	default:
		e.add("replicas", true, fmt.Sprintf("%d are connected", n), "")
	}
}
