package ledger

import (
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// What is foretold of a record is what it turns out to have done, whoever leads by then, and whatever its clock says.
func TestWhatIsForetoldComes(t *testing.T) {
	foretold, underNewLeader := map[Did]int{}, map[Did]int{}
	for seed := range seeds(15) {
		w := newWorld(t, seed)
		keys := manyKeys(4)
		var came Result
		book := w.book(0, 1, func(_ Line, res Result) { came = res })
		w.run(keys, 5, 400, func(r Record) {
			w.feed(book, r.Offset)
			e, err := Decode(r)
			if err != nil {
				t.Fatal(err)
			}
			page, err := book.Page(e.Key)
			if err != nil {
				t.Fatal(err)
			}
			before := page.State().Epoch
			if _, ok := book.Foretell(e, r.Offset+1, r.Time); ok {
				t.Fatal("something was foretold across a gap")
			}
			res, ok := book.Foretell(e, r.Offset, r.Time)
			came = Result{Did: -1}
			w.feed(book, r.Offset+1)
			if !ok {
				return
			}
			if foretold[res.Did]++; res.Did != Granted && res.Did != Renewed {
				came.Lease.Expires = 0 // not told
			}
			if r.Epoch != before {
				underNewLeader[res.Did]++
			}
			if res.Did != came.Did || res.Time != came.Time || res.Lease != came.Lease || res.Has != came.Has || (res.Err == nil) != (came.Err == nil) {
				t.Fatalf("seed %d, offset %d, %s: foretold %+v, and it is %+v", seed, r.Offset, e.Kind, res, came)
			}
		})
	}
	for _, did := range []Did{Nothing, Granted, Renewed, Ended} {
		if foretold[did] < 20 || underNewLeader[did] == 0 {
			t.Errorf("%v was foretold %d times, %d of them under a new leader: that says little", did, foretold[did], underNewLeader[did])
		}
	}
}

// When something is foretold, and when not. The record in question comes right after the others, under their leader.
func TestForetell(t *testing.T) {
	const want, read = true, false
	for name, c := range map[string]struct {
		before []step
		at     int64
		e      *Entry
		ok     bool
		did    string
	}{
		"a key without records":        {nil, 100, lock(alice), want, "granted"},
		"a key that was given back":    {[]step{{100, 0, lock(alice), ""}, {200, 0, release(alice, 100, backends.Failed), ""}}, 200, lock(bob), want, "granted"},
		"a second slot":                {[]step{{100, 0, lock(alice, slots(2)), ""}}, 200, lock(bob, slots(2)), want, "granted"},
		"the owner again":              {[]step{{100, 0, lock(alice), ""}}, 200, lock(alice), want, "granted"},
		"a beat":                       {[]step{{100, 0, lock(alice), ""}}, 1099, beat(alice, 100), want, "renewed"},
		"a release":                    {[]step{{100, 0, lock(alice), ""}}, 1099, release(alice, 100, backends.Succeeded), want, "ended"},
		"a beat of somebody else":      {[]step{{100, 0, lock(alice), ""}}, 200, beat(bob, 100), want, "nothing"},
		"a pause":                      {nil, 100, &Entry{Kind: Pause, Key: "k", By: "o", Writer: "w"}, want, "paused"},
		"a beat too late, or not so":   {[]step{{100, 0, lock(alice), ""}}, 1100, beat(alice, 100), read, ""},
		"a release too late, or not":   {[]step{{100, 0, lock(alice), ""}}, 1100, release(alice, 100, backends.Failed), read, ""},
		"a lease that ran out, or not": {[]step{{100, 0, lock(alice), ""}}, 5000, lock(bob), read, ""},
		"one that ran out long ago":    {[]step{{100, 0, lock(alice), ""}}, 5000 + MaxSkew, lock(bob), read, ""},
		"a refusal":                    {[]step{{100, 0, lock(alice), ""}}, 200, lock(bob), read, ""},
		"a refusal as done":            {[]step{{100, 0, lock(alice, runID("r")), ""}, {200, 0, release(alice, 100, backends.Succeeded), ""}}, 300, lock(bob, runID("r")), read, ""},
		"a break":                      {[]step{{100, 0, lock(alice), ""}}, 200, &Entry{Kind: Break, Key: "k", Writer: "w"}, read, ""},
		"a time before the last one":   {[]step{{100, 0, lock(alice), ""}, {200, 0, release(alice, 100, backends.Failed), ""}}, 199, lock(bob), read, ""},
		"the producers' times":         {nil, 0, lock(alice), read, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			book := w.book(0, 1, nil)
			page, err := book.Page("k")
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range c.before {
				w.real = st.at
				known, err := book.Carry(page, st.e)
				if err != nil {
					t.Fatal(err)
				}
				w.append(st.e, known)
				w.feed(book, int64(len(w.log)))
			}
			text := page.State().Text()
			res, ok := book.Foretell(c.e, book.Next(), c.at)
			if ok != c.ok || ok && told(res) != c.did {
				t.Errorf("foretold: %v, %s", ok, told(res))
			}
			if page.State().Text() != text {
				t.Errorf("the page has become %s", page.State().Text())
			}
		})
	}
}
