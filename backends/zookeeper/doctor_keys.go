package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Of a store with very many keys not all are examined, and of those that are odd not all are named.
const (
	mostExamined = 5000
	mostNamed    = 5
)

// odd are keys with one thing wrong.
type odd struct {
	wrong  error
	remedy string
	keys   []string
}

// keys looks for what listings pass over: nodes of other programs and of later versions, and what is closed to us.
func (e *examination) keys(ctx context.Context) {
	all, err := e.b.keys(ctx, e.s)
	switch {
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, errNotInitialised):
		return // said already
	case err != nil:
		e.fail("keys", err)
		return
	}
	some := all[:min(len(all), mostExamined)]
	faults := make([]error, len(some))
	if err := parallel(len(some), func(i int) (err error) { faults[i], err = e.faultOf(ctx, some[i]); return err }); err != nil {
		e.fail("keys", err)
		return
	}
	if groups := e.sortOut(some, faults); len(groups) > 0 {
		e.tellOdd(groups)
		return
	}
	cause := fmt.Sprintf("all %d can be read", len(some))
	if len(some) < len(all) {
		cause = fmt.Sprintf("%d of %d were looked at, and can be read", len(some), len(all))
	}
	e.add("keys", true, cause, "")
}

// faultOf is what is wrong with a key, or with the record of its last run; err is that nobody could tell.
func (e *examination) faultOf(ctx context.Context, key string) (fault, err error) {
	v, err := e.b.load(ctx, e.s, key, query{timeless: true})
	if isKeyFault(err) {
		return err, nil
	}
	if err != nil || v.s.Next <= v.s.First {
		return nil, err
	}
	if _, err = e.s.get(ctx, runPath(v.path, v.s.Next-1)); errors.Is(err, zk.ErrNoAuth) {
		return ofKey(key, err), nil
	}
	return nil, err
}

// sortOut puts keys together that have the same thing wrong.
func (e *examination) sortOut(keys []string, faults []error) []odd {
	groups := []odd{{wrong: errForeign}, {wrong: errNewer}, {wrong: zk.ErrNoAuth}}
	for i, f := range faults {
		for j := range groups {
			if g := &groups[j]; errors.Is(f, g.wrong) {
				g.remedy, _ = e.b.advise(f)
				g.keys = append(g.keys, keys[i])
			}
		}
	}
	var found []odd
	for _, g := range groups {
		if len(g.keys) > 0 {
			found = append(found, g)
		}
	}
	return found
}

// tellOdd makes one finding of each group. Runs of these keys answer 69, and listings leave them out.
func (e *examination) tellOdd(groups []odd) {
	for _, g := range groups {
		var names []string
		for _, key := range g.keys[:min(len(g.keys), mostNamed)] {
			names = append(names, strconv.Quote(key))
		}
		cause := strings.Join(names, ", ")
		if more := len(g.keys) - len(names); more > 0 {
			cause += fmt.Sprintf(" and %d more", more)
		}
		e.add("keys", false, cause+": "+explain(g.wrong), g.remedy)
	}
}
