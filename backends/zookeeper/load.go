package zookeeper

import (
	"context"
	"encoding/json"
	"time"
)

// query says what a view has to hold beside the key itself.
type query struct {
	runID    string // "": none
	waiters  bool
	timeless bool // the time is not asked for; where it is known anyway, it is there
}

// load reads a key in one round trip. The store's time is asked for beside it, where it is not known.
func (b *backend) load(ctx context.Context, s *session, key string, q query) (*view, error) {
	v := &view{key: key, path: b.c.keyPath(key)}
	var data, names, id, queue node
	asks := []func() error{
		func() (err error) { data, err = s.get(ctx, v.path); return },
		func() (err error) { names, err = s.children(ctx, v.path); return },
	}
	if q.runID != "" {
		asks = append(asks, func() (err error) { id, err = s.get(ctx, idPath(v.path, q.runID)); return })
	}
	if q.waiters {
		asks = append(asks, func() (err error) { queue, err = s.exists(ctx, v.path+"/"+queueName); return })
	}
	if now, ok := b.clock.read(); ok {
		v.now = now
	} else if !q.timeless {
		asks = append(asks, func() (err error) { v.now, err = b.now(ctx, s); return })
	}
	for {
		if err := parallel(len(asks), func(i int) error { return asks[i]() }); err != nil {
			return nil, ofKey(key, err)
		}
		// Both answers carry the version of the key's node. Were it not the same, one might be older than a grant and the other
		// than its lease.
		if data.found == names.found && data.stat.Version == names.stat.Version {
			break
		}
	}
	v.waiters = int(queue.stat.NumChildren)
	return v, ofKey(key, v.read(data, names, id, q.runID))
}

// read fills a view from what was answered.
func (v *view) read(data, names, id node, run string) error {
	if !data.found {
		return nil
	}
	s, err := parseState(data.data, v.key)
	if err != nil {
		return err
	}
	v.s, v.found, v.version, v.zxid = *s, true, data.stat.Version, data.stat.Mzxid
	v.settle(data.stat.Mtime)
	v.readChildren(names.children)
	if id.found {
		v.id, v.idVersion = &runID{}, id.stat.Version
		if err := json.Unmarshal(id.data, v.id); err != nil || v.id.ID != run {
			return errForeign
		}
	}
	return nil
}

// withRenewals asks when the live leases were last renewed, for those who are told until when the key is held.
func (b *backend) withRenewals(ctx context.Context, s *session, v *view) error {
	stats := make([]node, len(v.s.Slots))
	err := parallel(len(stats), func(i int) (err error) {
		if l := &v.s.Slots[i]; v.live(l) {
			stats[i], err = s.exists(ctx, v.node(l))
		}
		return err
	})
	v.renewed = map[string]time.Time{}
	for i, n := range stats {
		if n.found {
			v.renewed[v.s.Slots[i].Owner] = time.UnixMilli(n.stat.Mtime)
		}
	}
	return err
}
