package zookeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Nodes under the chroot:
//
//	clock                       written to learn the servers' time
//	keys/KEY                    what is known of a key: see state
//	keys/KEY/lease-OWNER        ephemeral: the holder's session lives
//	keys/KEY/queue/OWNER-N      ephemeral, sequential: who waits
//	keys/KEY/runs/N             the record of the Nth run that ended
//	keys/KEY/refused/N          sequential: the record of a refusal
//	keys/KEY/ids/HH/ID          attempts and the done-mark of a run id; HH spreads them
const (
	leasePrefix = "lease-"
	queueName   = "queue"
	runsName    = "runs"
	refusedName = "refused"
	idsName     = "ids"
)

func (c *config) keysPath() string          { return c.root + "/keys" }
func (c *config) clockPath() string         { return c.root + "/clock" }
func (c *config) keyPath(key string) string { return c.keysPath() + "/" + encode(key) }

func leasePath(node, owner string) string { return node + "/" + leasePrefix + owner }
func runPath(node string, n int64) string {
	return node + "/" + runsName + "/" + strconv.FormatInt(n, 10)
}

// longestID keeps names short enough for listings; longer run ids go by their hash, and their node's data tells them.
const longestID = 64

// idPath spreads run ids over 256 nodes, so that half a million of them, a year's minutes, can still be listed: a listing
// has to fit into one packet (jute.maxbuffer, 1 MB).
func idPath(node, id string) string {
	sum := sha256.Sum256([]byte(id))
	hash := hex.EncodeToString(sum[:])
	name := encode(id)
	if len(name) > longestID {
		name = "%" + hash // longer than any name that stands for itself
	}
	return fmt.Sprintf("%s/%s/%s/%s", node, idsName, hash[:2], name)
}

const upperHex = "0123456789ABCDEF"

// encode makes the name of a node from any string, different ones from different strings: letters, digits, '-' and '_' stay,
// every other byte becomes %XX. Servers refuse '/', ".", ".." and control characters in names.
func encode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

// decode undoes encode; ok is false for a name that encode does not make.
func decode(name string) (s string, ok bool) {
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' && i+2 < len(name) {
			n, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			c = byte(n)
			i += 2
		}
		b = append(b, c)
	}
	return string(b), encode(string(b)) == name
}

// parent is the path of the node above.
func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }
