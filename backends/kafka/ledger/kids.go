package ledger

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
)

// kids are the references of a branch by place, each list in the order of offsets; nil where the node is no branch.
//
// In a record they are a string: the base64 of one number for each reference, place by place. The number is twice the
// offset, and one more where the reference does not belong to the next place; then a second one tells how many places
// further it does.
type kids [][]int64

// clone is a copy in one piece of memory.
func (k kids) clone() kids {
	if k == nil {
		return nil
	}
	n := 0
	for _, refs := range k {
		n += len(refs)
	}
	c, all := make(kids, len(k)), make([]int64, 0, n)
	for kid, refs := range k {
		if from := len(all); len(refs) > 0 {
			all = append(all, refs...)
			c[kid] = all[from:len(all):len(all)]
		}
	}
	return c
}

func (k kids) MarshalJSON() ([]byte, error) {
	var b []byte
	at := -1
	for kid, refs := range k {
		for _, ref := range refs {
			if kid == at+1 {
				b = binary.AppendUvarint(b, uint64(ref)<<1)
			} else {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(ref)<<1|1), uint64(kid-at))
			}
			at = kid
		}
	}
	text := make([]byte, 0, base64.RawStdEncoding.EncodedLen(len(b))+2)
	text = base64.RawStdEncoding.AppendEncode(append(text, '"'), b)
	return append(text, '"'), nil
}

var errKids = errors.New("the references of a node cannot be read")

func (k *kids) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	*k = make(kids, fanout)
	all := make([]int64, 0, len(b)/3+1)
	for at := -1; len(b) > 0; {
		ref, n := binary.Uvarint(b)
		step := uint64(1)
		if n > 0 && ref&1 == 1 {
			var m int
			if step, m = binary.Uvarint(b[n:]); m <= 0 {
				return errKids
			}
			n += m
		}
		if n <= 0 || ref>>1 >= maxAmount || step >= fanout+1 || at+int(step) < 0 || at+int(step) >= fanout {
			return errKids
		}
		at += int(step)
		if all = append(all, int64(ref>>1)); (*k)[at] == nil {
			(*k)[at] = all[len(all)-1 : len(all) : len(all)]
		} else {
			(*k)[at] = append((*k)[at], int64(ref>>1))
		}
		b = b[n:]
	}
	return nil
}
