package backends

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKey is the greatest length of a key in bytes. MaxRunID and MaxHolder bound what is shown beside it.
const (
	MaxKey    = 255
	MaxRunID  = 255
	MaxHolder = 255
)

// MaxReason bounds the words of a pause or of a run's end, which every listing repeats.
const MaxReason = 1024

// CheckKey returns a *UsageError where key is not 1 to 255 bytes of UTF-8 without NUL. Everything else is allowed,
// newlines, slashes and leading dashes included: keys are compared byte by byte and encoded by whoever shows them.
func CheckKey(key string) error {
	switch {
	case key == "":
		return &UsageError{What: "key", Why: "it is empty", Remedy: "give it 1 to 255 bytes"}
	case len(key) > MaxKey:
		return &UsageError{What: "key", Why: fmt.Sprintf("it is %d bytes long", len(key)), Remedy: "use at most 255 bytes"}
	case strings.IndexByte(key, 0) >= 0:
		return &UsageError{What: fmt.Sprintf("key %q", key), Why: "it contains a NUL byte", Remedy: "leave it out"}
	case !utf8.ValidString(key):
		return &UsageError{What: fmt.Sprintf("key %q", key), Why: "it is not UTF-8", Remedy: "encode it as UTF-8"}
	}
	return nil
}

// CheckRunID returns a *UsageError where id is longer than 255 bytes, not UTF-8, or holds a control character. A run id
// is a name that people compare by eye in listings, so, other than a key, it may not contain a newline. Empty is allowed
// and means none.
func CheckRunID(id string) error { return checkName("run id", id, MaxRunID) }

// CheckHolder returns a *UsageError where name is longer than 255 bytes, not UTF-8, or holds a control character: it
// goes into log lines and listings of one line each. Empty is allowed.
func CheckHolder(name string) error { return checkName("holder", name, MaxHolder) }

// CheckReason returns a *UsageError where the words are longer than 1024 bytes, not UTF-8, or hold a control character.
func CheckReason(words string) error { return checkName("reason", words, MaxReason) }

func checkName(what, s string, limit int) error {
	switch {
	case len(s) > limit:
		return &UsageError{What: what, Why: fmt.Sprintf("it is %d bytes long", len(s)), Remedy: fmt.Sprintf("use at most %d bytes", limit)}
	case !utf8.ValidString(s):
		return &UsageError{What: fmt.Sprintf("%s %q", what, s), Why: "it is not UTF-8", Remedy: "encode it as UTF-8"}
	case strings.ContainsFunc(s, isControl):
		return &UsageError{What: fmt.Sprintf("%s %q", what, s), Why: "it contains a control character", Remedy: "leave newlines, tabs and the like out"}
	}
	return nil
}

// isControl covers C0, DEL and C1, and the two line separators of Unicode that some viewers break lines at.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// NewOwner returns 128 random bits as 32 hexadecimal digits: the identity of one run.
func NewOwner() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program where the system has no randomness
	return hex.EncodeToString(b[:])
}

// CheckOwner returns an error where owner is not what NewOwner makes.
func CheckOwner(owner string) error {
	if len(owner) != 32 || strings.Trim(owner, "0123456789abcdef") != "" {
		return &UsageError{What: "owner", Why: "it is not 32 hexadecimal digits"}
	}
	return nil
}

// Check returns a *UsageError for a request that no backend may carry out.
func (r Request) Check() error {
	for _, err := range []error{CheckKey(r.Key), CheckOwner(r.Owner), CheckHolder(r.Holder), CheckHolder(r.Host), CheckRunID(r.RunID)} {
		if err != nil {
			return err
		}
	}
	switch {
	case r.TTL <= 0:
		return &UsageError{What: "ttl " + r.TTL.String(), Why: "it is not positive"}
	case r.Slots < 1:
		return &UsageError{What: fmt.Sprintf("slots %d", r.Slots), Why: "there has to be at least one"}
	case r.Token < 0 || r.Token >= 1<<53:
		return &UsageError{What: fmt.Sprintf("token %d", r.Token), Why: "it is not from 0 to 2^53-1"}
	case r.HoldAtLeast < 0:
		return &UsageError{What: "hold-at-least " + r.HoldAtLeast.String(), Why: "it is negative"}
	}
	return nil
}
