package firestore

import (
	"context"
	"time"
)

// keyDocument is what is kept of a key for ever.
type keyDocument struct {
	updated string // version; "" where it is absent
	token   int64  // the last one that was given back, or more
	starts  int    // runs without a run id since the last success
	cleaned time.Time
}

// markDocument is what is known of a run id: how often it was started, and when it succeeded.
type markDocument struct {
	updated  string
	at       time.Time // of the last write
	attempts int
	done     bool
}

// snapshot is what one read tells about a key, all at one moment of the server's clock.
type snapshot struct {
	now    time.Time
	lease  *leaseDocument
	key    keyDocument
	mark   markDocument
	record *document // the record of the run that was asked about, nil where there is none
	last   int64     // the greatest token that is known of

	doubtful bool // of a change: an earlier commit of it, whose reply was lost, may have been carried out
}

// read gives a key's snapshot, with the mark of runID and the record of token where they are given.
func (b *backend) read(ctx context.Context, key, runID string, token int64) (*snapshot, error) {
	n := b.names
	list := []string{n.lease(key), n.key(key)}
	if runID != "" {
		list = append(list, n.mark(key, runID))
	}
	if token != 0 {
		list = append(list, n.record(key, token))
	}
	found, now, err := b.client.read(ctx, list...)
	if err != nil {
		return nil, err
	}
	s, err := newSnapshot(key, now, found[n.lease(key)], found[n.key(key)])
	if err != nil {
		return nil, err
	}
	if runID != "" {
		if s.mark, err = parseMark(key, runID, found[n.mark(key, runID)], now.Add(-b.keep.DoneAge)); err != nil {
			return nil, err
		}
	}
	if token != 0 {
		s.record = found[n.record(key, token)]
	}
	return s, nil
}

func newSnapshot(key string, now time.Time, lease, kept *document) (*snapshot, error) {
	l, err := parseLease(key, lease)
	if err != nil {
		return nil, err
	}
	k, err := parseKey(key, kept)
	if err != nil {
		return nil, err
	}
	s := &snapshot{now: now, lease: l, key: k, last: k.token}
	for _, own := range l.slots {
		s.last = max(s.last, own.token)
	}
	return s, nil
}

// parseKey reads a key's document; nil is an absent one.
func parseKey(key string, d *document) (keyDocument, error) {
	switch {
	case d == nil:
		return keyDocument{}, nil
	case d.Fields.num("layout") != layout || d.Fields.str("key") != key:
		return keyDocument{}, foreign(d)
	}
	return keyDocument{updated: d.Updated, token: d.Fields.num("token"), starts: int(d.Fields.num("starts")), cleaned: microTime(d.Fields.num("cleaned_us"))}, nil
}

// microTime is a time that a transform can tell, which it can only of numbers.
func microTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// parseMark reads a mark; one that is older than it has to be kept is as good as none.
func parseMark(key, runID string, d *document, oldest time.Time) (markDocument, error) {
	if d == nil {
		return markDocument{}, nil
	}
	if f := d.Fields; f.str("key") != key || f.str("run_id") != *str(runID).Str {
		return markDocument{}, foreign(d)
	}
	m := markDocument{updated: d.Updated, at: parseTime(d.Updated)}
	if !m.at.Before(oldest) {
		m.attempts, m.done = int(d.Fields.num("attempts")), d.Fields.flag("done")
	}
	return m, nil
}

// put writes the lease's document as l has it, on condition that it is as it was read. One that has nothing to tell any
// more is deleted. It returns nothing where there was nothing and is nothing.
func (b *backend) put(l *leaseDocument, now time.Time) []write {
	if l.pause != nil && !l.pause.active(now) {
		l.pause = nil
	}
	name := b.names.lease(l.key)
	switch {
	case len(l.slots) > 0 || l.pause != nil:
		return []write{{Update: &document{Name: name, Fields: l.fields()}, Current: version(l.updated)}}
	case l.updated != "":
		return []write{{Delete: name, Current: version(l.updated)}}
	}
	return nil
}

// touch writes what the key's document has to have, and leaves the rest of it as it is. more are fields to set.
func (b *backend) touch(key string, more fields, t ...transform) write {
	f := fields{"key": str(key), "layout": num(layout)}.with(more)
	m := &mask{}
	for name := range f {
		m.Paths = append(m.Paths, name)
	}
	return write{Update: &document{Name: b.names.key(key), Fields: f}, Mask: m, Transforms: t}
}

// sweep takes the slots that nobody holds out of the document, and records those of them that ran out as crashed.
func (b *backend) sweep(l *leaseDocument, now time.Time) []write {
	var writes []write
	for n, s := range l.slots {
		if s.taken(now) {
			continue
		}
		if !s.recorded && !s.released {
			writes = append(writes, b.putRecord(s.crashed(l.key, now), now))
		}
		delete(l.slots, n)
	}
	return writes
}
