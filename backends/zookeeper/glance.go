package zookeeper

import (
	"context"
	"time"
)

// glance is a look at a key that is asked for together with the session.
type glance struct {
	key       string
	q         query
	questions []*question // data, children and, with a run id, that
}

func (b *backend) glanceAt(key string, q query) *glance {
	path := b.c.keyPath(key)
	g := &glance{key: key, q: q, questions: []*question{about(firstNumber, askData, path), about(firstNumber+1, askChildren, path)}}
	if q.runID != "" {
		g.questions = append(g.questions, about(firstNumber+2, askData, idPath(path, q.runID)))
	}
	return g
}

// seen is the key as the servers showed it when the session began; nil where they did not, or where it has to be looked at
// more closely, which whoever asks in the usual way finds out. It is no older than a look that begins when the session is
// there.
func (b *backend) seen(ctx context.Context, s *session, g *glance) *view {
	l, err := s.await(ctx)
	if err != nil {
		return nil
	}
	bound := time.NewTimer(s.firstBound())
	defer bound.Stop()
	var nodes [3]node
	for i, q := range g.questions {
		nodes[i], err = q.wait(ctx, bound.C)
		if err == errNoAnswer {
			l.Close() // as once does
		}
		if err != nil {
			return nil
		}
	}
	data, names, id := nodes[0], nodes[1], nodes[2]
	v := &view{key: g.key, path: b.c.keyPath(g.key)}
	if data.found != names.found || data.stat.Version != names.stat.Version || v.read(data, names, id, g.q.runID) != nil {
		return nil
	}
	if now, ok := b.clock.read(); ok {
		v.now = now
	}
	return v
}
