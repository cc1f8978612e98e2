package multi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lease is one lease in each store.
type lease struct {
	b     *backend
	parts []backends.Lease // in the order of the stores; nil: found lost by Attach; never all of them
	grant backends.Grant

	mu    sync.Mutex
	ended []bool // which parts are known to be released or lost
	lost  error  // what the first part that was found lost said
}

var (
	_ backends.Liveness = (*lease)(nil)
	_ backends.Fixed    = (*lease)(nil)
)

// combine is what all grants come to: the first one's, but no longer than any of them.
func combine(parts []backends.Lease) backends.Grant {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p backends.Lease) bool { return p == nil })
	g := parts[0].Grant()
	usable := g.TTL - g.Drift
	for _, p := range parts[1:] {
		other := p.Grant()
		g.TTL = min(g.TTL, other.TTL)
		usable = min(usable, other.TTL-other.Drift)
		g.Takeover = g.Takeover || other.Takeover
	}
	g.Drift = g.TTL - usable
	return g
}

// Grant is the first store's, with the least time that any of them gives.
func (l *lease) Grant() backends.Grant { return l.grant }

// Files are those of all parts.
func (l *lease) Files() []*os.File { return backends.FilesOf(l.parts...) }

// FixedTTL is true where a part does not get longer: the lease ends with the first of them.
func (l *lease) FixedTTL() bool { return backends.AnyFixed(l.parts...) }

// on says which part is lost.
func (l *lease) on(i int) error { return fmt.Errorf("%w (on %s)", backends.ErrLost, l.b.all[i].Name()) }

// Renew renews all parts at the same time. It is lost as soon as one of them is, whatever the others are about to say; it
// is not known whether it was renewed where that is not known of one.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	answers := make(chan error, len(l.parts))
	for i, p := range l.parts {
		if p == nil {
			return l.on(i)
		}
		go func() {
			err := p.Renew(ctx, ttl)
			if errors.Is(err, backends.ErrLost) {
				err = l.on(i)
			}
			answers <- err
		}()
	}
	var unknown error
	for range l.parts {
		err := <-answers
		if errors.Is(err, backends.ErrLost) {
			return err
		}
		if unknown == nil {
			unknown = err
		}
	}
	return unknown
}

// stagger is how long the release of one part is waited for before the next is begun. The order is kept where stores
// answer, and none of them can keep the others from being asked.
const stagger = 500 * time.Millisecond

// answer is what became of the release of a part.
type answer struct {
	part int
	err  error
}

// Release gives the parts back in reverse order, the first one last: it has the run record and the done-mark, and by then
// knows whether another was lost. A repetition asks only those that did not answer.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := make(chan answer, len(l.parts))
	asked := 0
	var unknown error
	take := func(a answer) {
		asked--
		switch {
		case a.err == nil:
			l.ended[a.part] = true
		case errors.Is(a.err, backends.ErrLost):
			l.ended[a.part] = true
			l.nowLost(a.part)
		default:
			unknown = a.err
		}
	}
	for i := len(l.parts) - 1; i >= 0; i-- {
		if l.ended[i] {
			continue
		}
		if l.parts[i] == nil {
			l.nowLost(i)
			continue
		}
		l.begin(ctx, i, end, answers)
		asked++
		for next := time.After(min(stagger, l.b.timeout/4)); next != nil && asked > 0; {
			select {
			case a := <-answers:
				take(a)
			case <-next:
				next = nil
			}
		}
	}
	for asked > 0 {
		take(<-answers)
	}
	if l.lost != nil {
		return l.lost
	}
	return unknown
}

func (l *lease) nowLost(i int) {
	if l.lost == nil {
		l.lost = l.on(i)
	}
}

// begin releases one part, again while the answer is not known.
func (l *lease) begin(ctx context.Context, i int, end backends.End, answers chan<- answer) {
	if i == 0 && l.lost != nil && end.Outcome != backends.Lost {
		end.Outcome, end.Reason = backends.Lost, l.lost.Error()
	}
	p := l.parts[i]
	go func() { answers <- answer{i, backends.UntilAnswered(ctx, func() error { return p.Release(ctx, end) })} }()
}

// Attach finds the part of each store: by the token of the first, or, where another store had to hand out one of its own,
// by who holds it. A part that is not there any more is lost, which Renew and Release tell; so a release still frees the
// others.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	first, err := b.all[0].Attach(ctx, key, token)
	if errors.Is(err, backends.ErrLost) {
		return b.attachRest(ctx, key, token, err)
	}
	if err != nil {
		return nil, err
	}
	l := &lease{b: b, parts: make([]backends.Lease, len(b.all)), ended: make([]bool, len(b.all))}
	l.parts[0] = first
	err = b.each(b.all[1:], func(i int, s backends.Backend) error {
		p, err := b.attach(ctx, s, key, token)
		l.parts[i+1] = p
		return err
	})
	if err != nil {
		return nil, err
	}
	l.grant = combine(l.parts)
	return l, nil
}

// attach finds the part that s has of the lease with this token; nil where there is none.
func (b *backend) attach(ctx context.Context, s backends.Backend, key string, token int64) (backends.Lease, error) {
	p, err := s.Attach(ctx, key, token)
	if err == nil || !backends.Positive(err) {
		return p, err
	}
	found, err := b.find(ctx, s, backends.State{Key: key, Token: token})
	if found == nil || err != nil {
		return nil, err
	}
	p, err = s.Attach(ctx, key, found.Token)
	if backends.Positive(err) {
		return nil, nil
	}
	return p, err
}

// attachRest finds what other stores still have of a lease that the first has ended, whose answer was lost. Whose it was the
// first store's history tells; a run that the other store alone knows may have the same token by chance.
func (b *backend) attachRest(ctx context.Context, key string, token int64, lost error) (backends.Lease, error) {
	runs, err := b.all[0].History(ctx, backends.Query{Key: key})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(runs, func(r backends.Record) bool { return r.Token == token && !r.Outcome.Refusal() })
	if i < 0 {
		return nil, lost
	}
	like := backends.State{Key: key, Token: token, Holder: runs[i].Holder, Host: runs[i].Host, PID: runs[i].PID}
	l := &lease{b: b, parts: make([]backends.Lease, len(b.all)), ended: make([]bool, len(b.all))}
	err = b.each(b.all[1:], func(i int, s backends.Backend) error {
		found, err := b.find(ctx, s, like)
		if found == nil || err != nil || found.Holder != like.Holder || found.Host != like.Host || found.PID != like.PID {
			return err
		}
		p, err := s.Attach(ctx, key, found.Token)
		if backends.Positive(err) {
			return nil
		}
		l.parts[i+1] = p
		return err
	})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(l.parts, func(p backends.Lease) bool { return p != nil }) {
		return nil, lost
	}
	l.grant = combine(l.parts)
	return l, nil
}

// find looks in s for the part of the lease that the first store shows like this; only key and token need be given.
func (b *backend) find(ctx context.Context, s backends.Backend, like backends.State) (*backends.State, error) {
	if like.Holder == "" {
		states, err := b.all[0].Status(ctx, like.Key)
		if err != nil {
			return nil, err
		}
		for _, st := range states {
			if st.State == backends.Held && st.Token == like.Token {
				like = st
			}
		}
	}
	states, err := s.Status(ctx, like.Key)
	if err != nil {
		return nil, err
	}
	return backends.OfSameRun(states, like), nil
}
