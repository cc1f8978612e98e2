package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Walker = (*backend)(nil)

// Walk reads the records of so many keys at a time as one pipeline asks for. What a sum has no use for is not taken apart:
// that would take most of the time.
func (b *backend) Walk(ctx context.Context, q backends.Query, f func(*backends.Record) error) error {
	keys := []string{q.Key}
	if q.Key == "" {
		var err error
		if keys, err = b.node.keys(ctx); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(keys, chunk) {
		// f is not called from the exchange: a part that is asked for again, on another server, would be told twice.
		var all []keyTexts
		err := b.node.texts(ctx, part, func(d dump, texts []string) { all = append(all, keyTexts{d, texts}) })
		if err != nil {
			return err
		}
		told := map[string]bool{}
		for _, k := range all {
			if told[k.d.key] {
				continue
			}
			told[k.d.key] = true
			if err := k.walk(b.node.name, q, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyTexts is what is known of one key, and its records as they are stored.
type keyTexts struct {
	d     dump
	texts []string
}

// walk tells the records of the key, and of leases that ran out and that no record tells of.
func (k *keyTexts) walk(name string, q backends.Query, f func(*backends.Record) error) error {
	dead := map[int64]row{}
	for _, r := range k.d.rows {
		if r.state == "L" && !r.live(k.d.now) {
			dead[r.token] = r
		}
	}
	var w walked
	for _, text := range k.texts {
		if !w.read(k.d.key, text) {
			continue
		}
		if len(dead) > 0 {
			delete(dead, w.rec.Token)
		}
		if !q.Matches(w.rec) {
			continue
		}
		if err := f(&w.rec); err != nil {
			return err
		}
	}
	for _, r := range dead {
		rec := k.d.crashed(r, name).Record
		if !q.Matches(rec) {
			continue
		}
		if err := f(&rec); err != nil {
			return err
		}
	}
	return nil
}

// walked is one record, used again, with the room for what its pointers point to.
type walked struct {
	rec      backends.Record
	exit     int
	duration time.Duration
}

// read reads what lua/records.lua describes, as parseRecord does, but for what is about people.
func (w *walked) read(key, text string) bool {
	head, tail, ok := strings.Cut(text, "\n")
	who, _, ok2 := strings.Cut(tail, "\n")
	var f [8]string
	for i := range f {
		f[i], head, _ = strings.Cut(head, " ")
	}
	if !ok || !ok2 || f[7] == "" || head != "" || !strings.HasSuffix(who, "}") {
		return false
	}
	w.rec = backends.Record{Key: key, Outcome: backends.Outcome(f[3]), StartedAt: micros(f[4]), EndedAt: micros(f[5]), Waited: waited(who)}
	w.rec.Token, _ = strconv.ParseInt(f[0], 10, 64)
	var err error
	if w.exit, err = strconv.Atoi(f[6]); err == nil {
		w.rec.ExitCode = &w.exit
	}
	if n, err := strconv.ParseInt(f[7], 10, 64); err == nil {
		w.duration = time.Duration(n) * time.Microsecond
		w.rec.Duration = &w.duration
	}
	return true
}

// waited finds who.Waited in its JSON. No text of a user's can look like the name of a field: its quotes are escaped.
func waited(who string) time.Duration {
	_, rest, found := strings.Cut(who, `"waited_us":`)
	if !found {
		return 0
	}
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	us, _ := strconv.ParseInt(rest[:n], 10, 64)
	return time.Duration(us) * time.Microsecond
}
