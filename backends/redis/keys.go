package redis

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// buckets is how many hash tags all keys share, for ever: changing it would lose every lease.
//
// The tag is the bucket of the lock key, not the key itself, so that a set with the names of all keys of a bucket can
// lie in the same slot and be kept by the same script. Listing keys then asks 256 sets, however large the database is,
// where a tag around the key would leave only SCAN over everything that others keep there. And since a cluster looks at
// the first pair of braces alone, which is ours, the lock key may follow as it is: braces in it need no escaping, and
// different keys can never meet. 256 tags spread over a cluster of a few dozen masters evenly enough.
const buckets = 256

// defaultPrefix begins every name, so that one ACL pattern covers them.
const defaultPrefix = "lockrun:"

// bucketOf is where a lock key lives.
func bucketOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key)) // never fails
	sum := h.Sum32()
	return int((sum ^ sum>>8 ^ sum>>16 ^ sum>>24) % buckets)
}

// names are the Redis keys of one lock key. All of them lie in one slot of a cluster.
type names struct {
	lease   string // hash: token counter, pause, and a field for each slot; never expires
	runs    string // sorted set by token: run records
	skips   string // list: refusals
	done    string // sorted set by time: run ids that succeeded
	tries   string // sorted set: attempts of run ids
	waiters string // sorted set by expiry: owners that wait
	wake    string // list that waiters block on
	index   string // set: the lock keys of the bucket
}

func (c *config) names(key string) names {
	tag := c.tagged(bucketOf(key))
	at := func(kind string) string { return tag + kind + ":" + key }
	return names{lease: at("lease"), runs: at("runs"), skips: at("skips"), done: at("done"), tries: at("tries"),
		waiters: at("waiters"), wake: at("wake"), index: tag + "keys"}
}

// index has no colon after its kind, which no key can imitate.
func (c *config) index(bucket int) string { return c.tagged(bucket) + "keys" }

// tagged is what all names of a bucket begin with.
func (c *config) tagged(bucket int) string { return fmt.Sprintf("%s{%02x}:", c.prefix, bucket) }

// checkPrefix refuses braces: they would become the hash tag.
func checkPrefix(p string) error {
	if strings.ContainsAny(p, "{}") {
		return &backends.UsageError{What: "prefix of the Redis URL", Why: "it contains a brace, which Redis Cluster gives a meaning",
			Remedy: "leave braces out"}
	}
	return nil
}
