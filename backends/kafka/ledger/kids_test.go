package ledger

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

// References survive their way through a record, wherever they are.
func TestReferencesAreReadAsWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, odds := range []int{1, 2, 40, 300} {
		want := make(kids, fanout)
		for kid := range want {
			for rnd.IntN(odds) == 0 && len(want[kid]) < 4 {
				want[kid] = append(want[kid], rnd.Int64N(maxAmount))
			}
		}
		text, err := json.Marshal(Node{Kids: want})
		if err != nil {
			t.Fatal(err)
		}
		var got Node
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got.Kids, want) {
			t.Errorf("one in %d: %s became another branch (%v)", odds, text, err)
		}
		if other := got.clone(); !reflect.DeepEqual(other.Kids, want) {
			t.Errorf("one in %d: the clone of %s is another branch", odds, text)
		}
	}
}

// Two lists of a clone lie side by side in memory; one that grows does not reach into the next.
func TestAListThatGrowsLeavesTheNextAlone(t *testing.T) {
	n := Node{Kids: make(kids, fanout)}
	n.Kids[0], n.Kids[1] = []int64{1}, []int64{2}
	c := n.clone()
	c.refer(0, 7)
	if !reflect.DeepEqual(c.Kids[:2], kids{{1, 7}, {2}}) || !reflect.DeepEqual(n.Kids[:2], kids{{1}, {2}}) {
		t.Errorf("%v, and what was cloned is %v", c.Kids[:2], n.Kids[:2])
	}
}

// A full branch takes some four bytes a reference, as long as there are not very many records.
func TestABranchIsSmall(t *testing.T) {
	full := make(kids, fanout)
	for kid := range full {
		full[kid] = []int64{int64(990_000 + kid)}
	}
	if text, err := json.Marshal(full); err != nil || len(text) > 4*fanout+2 {
		t.Errorf("%d bytes (%v)", len(text), err)
	}
}
