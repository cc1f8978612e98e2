package firestore

import (
	"fmt"
	"strconv"
	"strings"
)

// names are the paths of a store's documents.
//
// Leases lie in the collection that the URL names, one document a key, and only while something is to be told about the
// key: who opens the console sees what is held. All else lies beside it in collections of their own, so that a TTL policy,
// which Firestore sets for all collections of one name, reaches nothing else.
type names struct {
	root       string // "projects/P/databases/D/documents", and what the URL has before the last collection
	collection string
}

func (n names) lease(key string) string { return n.root + "/" + n.collection + "/" + escape(key) }
func (n names) key(key string) string   { return n.root + "/" + n.collection + "-keys/" + escape(key) }

func (n names) mark(key, runID string) string {
	return n.key(key) + "/" + n.marks() + "/" + escape(runID)
}

// record is the record of the run that had the token. Its digits are of one width, so that names sort as tokens do.
func (n names) record(key string, token int64) string {
	return n.key(key) + "/" + n.runs() + "/" + fmt.Sprintf("%016d", token)
}

// loose is a record without a token, made at a moment by an owner.
func (n names) loose(collection, key, when, owner string) string {
	return n.key(key) + "/" + collection + "/" + when + "-" + owner
}

func (n names) waiter(key, owner string) string {
	return n.root + "/" + n.waiters() + "/" + escape(key) + "~" + owner
}

func (n names) keys() string    { return n.collection + "-keys" }
func (n names) runs() string    { return n.collection + "-runs" }
func (n names) skips() string   { return n.collection + "-skips" }
func (n names) marks() string   { return n.collection + "-marks" }
func (n names) waiters() string { return n.collection + "-waiters" }

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// escape makes a document's name of any string: everything but letters, digits, '-', '_' and '.' becomes %XX, and so does
// the first character of names that Firestore keeps to itself ('.', '..' and those like __x__). It is injective, since
// '%' itself is never plain and a percent-decoding gives the string back. 255 bytes become at most 765 of the 1,500 that
// a name may have.
func escape(s string) string {
	var b strings.Builder
	reserved := s == "." || s == ".." || len(s) >= 4 && strings.HasPrefix(s, "__") && strings.HasSuffix(s, "__")
	for i := range len(s) {
		if strings.IndexByte(plain, s[i]) >= 0 && !(reserved && i == 0) {
			b.WriteByte(s[i])
			continue
		}
		b.WriteByte('%')
		if s[i] < 16 {
			b.WriteByte('0')
		}
		b.WriteString(strings.ToUpper(strconv.FormatUint(uint64(s[i]), 16)))
	}
	return b.String()
}
