package zookeeper

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// One node that is not ours, or is closed to us, must not hide all the others.
func TestListingsPassOddKeysOver(t *testing.T) {
	url := oneServer(t).URL("/odd")
	s := newStore(t, url)
	b := opened(t, url, backends.Options{})
	release(t, acquire(t, b, request("good")))
	mixed := acquire(t, b, request("mixed"))
	release(t, mixed)
	s.foreign("foreign")
	if _, err := s.conn.Create(s.c.keyPath("later"), []byte(`{"lockrun":2,"key":"later"}`), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	other := opened(t, strings.Replace(url, "://", "://me:secret@", 1), backends.Options{})
	release(t, acquire(t, other, request("closed")))
	release(t, acquire(t, other, request("mixed"))) // its record is closed, and the key is not
	release(t, mixed)                               // once more: its own record is found behind that one

	states, err := b.Status(within(t, enough))
	var listed []string
	for _, st := range states {
		listed = append(listed, st.Key)
	}
	if err != nil || !slices.Equal(listed, []string{"good", "mixed"}) {
		t.Errorf("status of all: %v, %v", listed, err)
	}
	for _, key := range []string{"", "mixed"} {
		records, err := b.History(within(t, enough), backends.Query{Key: key})
		ours := slices.ContainsFunc(records, func(r backends.Record) bool { return r.Token == mixed.Grant().Token })
		if err != nil || !ours || len(records) != map[string]int{"": 2, "mixed": 1}[key] {
			t.Errorf("history of %q: %v, %v", key, records, err)
		}
	}
	for key, words := range map[string]string{"foreign": "not written by lockrun", "later": "newer lockrun", "closed": "not authenticated"} {
		_, err := b.Status(within(t, enough), key)
		unknown(t, err, true, `"`+key+`": `, words)
		_, err = b.Acquire(within(t, enough), request(key))
		unknown(t, err, true, `"`+key+`": `, words)
	}

	found := map[string]backends.Check{}
	for _, c := range b.(backends.Doctor).Doctor(within(t, enough)) {
		if c.Check == "keys" {
			key, _, _ := strings.Cut(c.Cause, ":")
			found[key] = c
		}
	}
	for _, keys := range []string{`"foreign"`, `"later"`, `"closed", "mixed"`} {
		if c, ok := found[keys]; !ok || c.OK || c.Remedy == "" || len(found) != 3 {
			t.Errorf("the doctor says %+v of %s", found, keys)
		}
	}
}

// What is there already is no success for who may not use it.
func TestInitWithTheWrongCredentials(t *testing.T) {
	closed := strings.Replace(oneServer(t).URL("/shut/in"), "://", "://me:right@", 1)
	init := func(url string) error {
		return opened(t, url, backends.Options{}).(backends.Initer).Init(within(t, enough))
	}
	for range 2 {
		if err := init(closed); err != nil {
			t.Fatal(err)
		}
	}
	unknown(t, init(strings.Replace(closed, "right", "wrong", 1)), true, "init on ", "not authenticated", "check user and password")
	unknown(t, init(strings.Replace(closed, "me:right@", "", 1)), true, "not authenticated", "name the user")
}
