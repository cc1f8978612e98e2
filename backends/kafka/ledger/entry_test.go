package ledger

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// sample is a sound record.
func sample(t testing.TB) Record {
	t.Helper()
	e := lock(alice, runID("r"), nth(3))
	value, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	carry, err := (&Carry{AsOf: 6, State: &State{Time: 5, Leases: []Lease{{Slot: 1, Token: 4, Owner: bob}}},
		Index: []Node{{Keys: map[string]int64{"k": 6}}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Record{Offset: 7, Time: 1000, Key: e.RecordKey(), Value: value, Carry: carry}
}

func TestDecode(t *testing.T) {
	good := sample(t)
	l, err := Read(good)
	l.open()
	if err != nil || l.Entry == nil || l.Carry == nil || l.Entry.Owner != alice || l.Carry.State.Leases[0].Token != 4 || l.Carry.Index[0].Keys["k"] != 6 {
		t.Fatalf("Read = %+v, %v", l, err)
	}
	if !HasKey(good.Key, "k") || HasKey(good.Key, "") || HasKey([]byte("kk\x00"), "k") {
		t.Error("HasKey is wrong")
	}
	for name, c := range map[string]struct {
		spoil func(*Record)
		want  error
	}{
		"no value":              {func(r *Record) { r.Value = nil }, ErrForeign},
		"text":                  {func(r *Record) { r.Value = []byte("hello") }, ErrForeign},
		"other JSON":            {func(r *Record) { r.Value = []byte(`{"type":"LOCK"}`) }, ErrForeign},
		"newer":                 {func(r *Record) { r.Value = []byte(`{"lockrun":2,"type":"FROB"}`) }, ErrNewer},
		"half":                  {func(r *Record) { r.Value = r.Value[:len(r.Value)/2] }, ErrForeign},
		"another key":           {func(r *Record) { r.Key = []byte("x") }, ErrMalformed},
		"no broker's time":      {func(r *Record) { r.Time = 0 }, ErrMalformed},
		"unknown type":          {replace(`"LOCK"`, `"FROB"`), ErrMalformed},
		"negative ttl":          {replace(`"ttl_ms":1000`, `"ttl_ms":-1000`), ErrMalformed},
		"ttl beyond reason":     {replace(`"ttl_ms":1000`, `"ttl_ms":9007199254740993`), ErrMalformed},
		"an owner that is none": {replace(alice, "me"), ErrMalformed},
	} {
		r := good
		c.spoil(&r)
		if _, err := Decode(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, carry := range map[string]string{"none": "", "of the future": `{"as_of":7}`, "damaged": `{"as_of":`,
		"a slot twice": `{"as_of":6,"state":{"leases":[{"slot":1},{"slot":1}]}}`, "an index of nowhere": `{"as_of":6,"index":[{"kids":"A/8D"}]}`, "an index cut off": `{"as_of":6,"index":[{"kids":"gw"}]}`} {
		r := good
		r.Carry = []byte(carry)
		l, err := Read(r)
		if l.open(); err != nil || l.Entry != nil {
			t.Errorf("a carry that is %s: %+v, %v", name, l.Entry, err)
		}
	}
}

func replace(old, new string) func(*Record) {
	return func(r *Record) {
		r.Value = []byte(strings.Replace(string(r.Value), old, new, 1))
		r.Key = []byte(strings.Replace(string(r.Key), old, new, 1))
	}
}

// Whatever is in a topic, reading it neither panics nor lets a damaged record in.
func FuzzRead(f *testing.F) {
	good := sample(f)
	f.Add(good.Key, good.Value, good.Carry)
	f.Add([]byte("k"), []byte(`{"lockrun":1,"type":"NOTE","key":"k","record":{"outcome":"skipped"}}`), []byte(`{"as_of":-1}`))
	f.Add(good.Key, good.Value, []byte(`{"as_of":6,"index":[{"kids":"BgoL/wE"},{"keys":{"k":5}}],"ids":[{"kids":"Bg"},{"keys":{"r":5}}]}`))
	f.Fuzz(func(t *testing.T, key, value, carry []byte) {
		r := Record{Offset: 7, Time: 1000, Key: key, Value: value, Carry: carry}
		l, err := Read(r)
		if err != nil && !errors.Is(err, ErrNewer) {
			t.Fatal(err)
		}
		if l.open(); l.Entry == nil {
			return
		}
		if backends.CheckKey(l.Entry.Key) != nil || !HasKey(key, l.Entry.Key) {
			t.Errorf("a record of %q was taken for one of %q", key, l.Entry.Key)
		}
		s := State{}
		if l.Carry.State != nil {
			s = *l.Carry.State.Clone()
		}
		res := s.Apply(l.Record, l.Entry)
		if res.Did == Granted && (res.Lease.Token <= 0 || !s.sound()) {
			t.Errorf("granted %+v, and the state is %s", res.Lease, s.Text())
		}
		b, _, err := NewBook(7, 7, []Line{l}, nil, nil)
		if err != nil || b.Next() != 8 {
			t.Errorf("a book with it alone: %v", err)
		}
	})
}
