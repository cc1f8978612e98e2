package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// everything is all that the store holds.
func (s *store) everything() string {
	all := ""
	for _, table := range []string{"keys", "leases", "runs", "history"} {
		all += fmt.Sprintln(s.sql(`SELECT * FROM ` + table))
	}
	return all
}

// spoils are values that no lockrun writes, by hand, and who meets them.
var spoils = []struct {
	sql string
	met []string
}{
	{`UPDATE keys SET token='foo'`, []string{"Acquire", "Break", "Status"}},
	{`UPDATE keys SET paused=x'00'`, []string{"Acquire", "Break", "Status"}},
	{`UPDATE leases SET token='foo'`, []string{"Acquire", "Break", "Status", "History", "Attach"}},
	{`UPDATE leases SET expires_boot='later'`, []string{"Acquire", "Break", "Status", "History", "Attach"}},
	{`UPDATE leases SET loose='yes'`, []string{"Acquire", "Break", "Status", "History", "Attach"}},
	{`UPDATE runs SET done='yesterday'`, []string{"Acquire"}},
	{`UPDATE history SET token='foo'`, []string{"History"}},
}

// used is a store in which each table has a row.
func used(t *testing.T, s *store) backends.Backend {
	t.Helper()
	b := s.open(backends.Options{})
	t.Cleanup(func() { b.Close() })
	r := request("k")
	r.RunID = "r1"
	l, err := b.Acquire(t.Context(), r)
	if err == nil {
		err = l.Release(t.Context(), backends.End{Outcome: backends.Failed})
	}
	if err == nil {
		_, err = b.Acquire(t.Context(), request("k"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheStoreRefusesForeignValues(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		used(t, s)
		before := s.everything()
		c, err := dial(s.d, s.path, "mode=rw")
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		for _, spoil := range spoils {
			if _, err := c.exec(spoil.sql); primary(err) != 19 { // SQLITE_CONSTRAINT
				t.Errorf("%s: %v, want it to be refused", spoil.sql, err)
			}
		}
		if after := s.everything(); after != before {
			t.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	})
}

// Whoever takes the strictness away first gets a foreign value in. It is no answer then, and no reason to write.
func TestForeignValuesAreNoAnswer(t *testing.T) {
	for _, spoil := range spoils {
		t.Run(spoil.sql, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, s *store) {
				used(t, s).Close()
				s.loosen()
				s.sql(spoil.sql)
				before := s.everything()
				b := s.open(backends.Options{})
				defer b.Close()
				for _, what := range spoil.met {
					err := ask(t.Context(), b, what)
					known := (*backends.Error)(nil)
					if !errors.Is(err, errForeignValue) || !errors.As(err, &known) || !known.Permanent || known.Remedy == "" {
						t.Errorf("%s = %v", what, err)
					}
				}
				if after := s.everything(); after != before {
					t.Errorf("the store changed from\n%s\nto\n%s", before, after)
				}
			})
		})
	}
}

// ask carries one operation out.
func ask(ctx context.Context, b backends.Backend, what string) (err error) {
	switch what {
	case "Acquire":
		r := request("k")
		r.RunID, r.Last, r.Slots = "r1", true, 9
		_, err = b.Acquire(ctx, r)
	case "Break":
		_, err = b.Break(ctx, "k", 0, "me")
	case "Status":
		_, err = b.Status(ctx, "k")
	case "History":
		_, err = b.History(ctx, backends.Query{})
	case "Attach":
		_, err = b.Attach(ctx, "k", 1)
	}
	return err
}

// loosen makes the tables those of a store without strict ones.
func (s *store) loosen() {
	s.t.Helper()
	c, err := dial(s.d, s.path, "mode=rw")
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.close()
	for _, sql := range []string{
		`PRAGMA writable_schema=ON`,
		`UPDATE sqlite_master SET sql=replace(replace(sql, ', STRICT', ''), ') STRICT', ')') WHERE type='table'`,
		`PRAGMA writable_schema=RESET`,
	} {
		if _, err := c.exec(sql); err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
	}
}
