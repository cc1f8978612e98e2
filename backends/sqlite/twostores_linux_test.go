package sqlite

import (
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// A run that holds leases in two files has one owner: each file has its own proof that the holder lives.
func TestOneOwnerInTwoStores(t *testing.T) {
	for _, d := range drivers() {
		one, two := newStore(t, d), newStore(t, d)
		r := request("k")
		var leases []backends.Lease
		for _, s := range []*store{one, two} {
			b := s.open(backends.Options{})
			t.Cleanup(func() { b.Close() })
			l, err := b.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
			if n := len(l.(backends.Liveness).Files()); n != 1 {
				t.Errorf("%d files prove that the holder lives", n)
			}
		}
		if err := leases[1].Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
			t.Fatal(err)
		}
		rival := one.open(backends.Options{})
		t.Cleanup(func() { rival.Close() })
		if l, err := rival.Acquire(t.Context(), request("k")); !isHeld(err) {
			t.Fatalf("the lease in one file was granted to another after the release in the other: %v, %v", l, err)
		}
		if err := leases[0].Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
			t.Errorf("Release: %v", err)
		}
		if rows := two.sql(`SELECT count(*) FROM leases`); rows[0] != "[0]" {
			t.Errorf("the other file has %v leases", rows)
		}
	}
}
