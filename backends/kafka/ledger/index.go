package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// The index answers "which record of this key is its last?" without reading the log: Kafka itself can find a record only by
// its offset or its time. It is a trie over the hashes of the keys whose nodes lie in the records of the log: each record
// carries those from the root to its own key, as of Carry.AsOf, and refers to all other nodes by the offset of the record
// that carries them. So a reader who has any recent record finds each key with one read for each level, and a writer adds
// a few hundred bytes however many keys there are.
//
// A reference to the record at offset x below a node of depth d means: the key of x has its last record at x, and what the
// node of depth d+1 in x says, if x has one. The first is needed because no record knows its own offset. Where several
// writers did not see one another a place has several references; the next writer who has read them all leaves one.

const (
	fanout   = 32 // children of a node: 5 bits of the hash
	leafSize = 32 // keys in a node before it is split
	maxDepth = 12 // 60 of the hash's 64 bits; deeper, a leaf just grows
)

// Node is one node of the index. It is a leaf, which has the last record of each of its keys, or a branch.
type Node struct {
	Keys map[string]int64 `json:"keys,omitempty"`
	Kids map[int][]int64  `json:"kids,omitempty"`
}

// hash is where a key is in the index. It is a cryptographic one so that nobody can choose keys that end up together.
type hash uint64

func hashOf(key string) hash {
	sum := sha256.Sum256([]byte(key))
	return hash(binary.BigEndian.Uint64(sum[:8]))
}

// place is the child of a node of that depth below which the hash is.
func (h hash) place(depth int) int { return int(h << (5 * depth) >> 59) }

// together tells whether two hashes are below the same node of that depth.
func (h hash) together(o hash, depth int) bool {
	return depth == 0 || h>>(64-5*depth) == o>>(64-5*depth)
}

func (n *Node) clone() Node {
	c := Node{}
	if n.Keys != nil {
		c.Keys = make(map[string]int64, len(n.Keys))
		for k, v := range n.Keys {
			c.Keys[k] = v
		}
	}
	if n.Kids != nil {
		c.Kids = make(map[int][]int64, len(n.Kids))
		for k, v := range n.Kids {
			c.Kids[k] = slices.Clone(v)
		}
	}
	return c
}

// put says that key has a record at that offset. The node is of that depth.
func (n *Node) put(key string, offset int64, depth int) {
	if n.Kids != nil {
		n.refer(hashOf(key).place(depth), offset)
		return
	}
	if n.Keys == nil {
		n.Keys = map[string]int64{}
	}
	n.Keys[key] = max(n.Keys[key], offset)
	if len(n.Keys) > leafSize && depth < maxDepth {
		n.split(depth)
	}
}

// split makes a branch of a leaf. The keys' records have no node below this one; each stands for itself.
func (n *Node) split(depth int) {
	keys := n.Keys
	n.Keys, n.Kids = nil, make(map[int][]int64, fanout)
	for k, offset := range keys {
		n.refer(hashOf(k).place(depth), offset)
	}
}

// refer adds a reference, in the order of offsets so that equal nodes look equal.
func (n *Node) refer(kid int, offset int64) {
	refs := n.Kids[kid]
	if i, found := slices.BinarySearch(refs, offset); !found {
		n.Kids[kid] = slices.Insert(refs, i, offset)
	}
}

// add takes a new record in. What its own node below covers, need not be referred to any longer.
func (n *Node) add(l Line, depth int) {
	if n.Kids != nil && len(l.Carry.Index) > depth+1 {
		kid := hashOf(l.Entry.Key).place(depth)
		n.Kids[kid] = slices.DeleteFunc(n.Kids[kid], func(ref int64) bool { return ref <= l.Carry.AsOf })
	}
	n.put(l.Entry.Key, l.Offset, depth)
}

// merge adds what another node of the same place says.
func (n *Node) merge(o *Node, depth int) {
	if o.Kids != nil && n.Kids == nil {
		n.split(depth)
	}
	for k, offset := range o.Keys {
		n.put(k, offset, depth)
	}
	for kid, refs := range o.Kids {
		for _, ref := range refs {
			n.refer(kid, ref)
		}
	}
}

// soundPath tells whether a record's nodes are such as lockrun writes.
func soundPath(path []Node) bool {
	if len(path) > maxDepth+1 {
		return false
	}
	for _, n := range path {
		if n.Keys != nil && n.Kids != nil {
			return false
		}
		for kid, refs := range n.Kids {
			if kid < 0 || kid >= fanout || slices.ContainsFunc(refs, func(r int64) bool { return r < 0 }) {
				return false
			}
		}
		for _, offset := range n.Keys {
			if offset < 0 {
				return false
			}
		}
	}
	return true
}

// path is one key's way through the index.
type path []Node

func (p path) clone() []Node {
	c := make([]Node, len(p))
	for i := range p {
		c[i] = p[i].clone()
	}
	return c
}

// add takes a new record into the nodes that it shares with key.
func (p *path) add(key hash, l Line) {
	other := hashOf(l.Entry.Key)
	for depth := 0; depth < len(*p) && key.together(other, depth); depth++ {
		n := &(*p)[depth]
		leaf := n.Keys
		n.add(l, depth)
		if n.Kids != nil && depth == len(*p)-1 { // it has just been split: what of it is below, with key
			below := Node{}
			for k, at := range leaf {
				if k != l.Entry.Key && key.together(hashOf(k), depth+1) {
					below.put(k, at, depth+1)
				}
			}
			*p = append(*p, below)
		}
	}
}

// find walks down to key. get returns the line at an offset, one without an entry where it means nothing; it is asked
// for nothing before start. The result is the offset of the key's last record, -1 for none, and the nodes on the way.
func (root *Node) find(key string, start int64, get func(int64) (Line, error)) (int64, path, error) {
	p, h := path{root.clone()}, hashOf(key)
	for depth := 0; ; depth++ {
		n := &p[depth]
		if n.Kids == nil {
			if offset, ok := n.Keys[key]; ok && offset >= start {
				return offset, p, nil
			}
			return -1, p, nil
		}
		below := Node{}
		for _, ref := range n.Kids[h.place(depth)] {
			if ref < start {
				continue
			}
			l, err := get(ref)
			if err != nil {
				return -1, nil, err
			}
			if l.Entry == nil {
				continue
			}
			below.put(l.Entry.Key, ref, depth+1)
			if len(l.Carry.Index) > depth+1 {
				below.merge(&l.Carry.Index[depth+1], depth+1)
			}
		}
		p = append(p, below)
	}
}

// keys calls f with each key and its last record. A key may come several times; the greatest offset is the last record.
func (n *Node) keys(start int64, depth int, get func(int64) (Line, error), f func(string, int64)) error {
	for k, offset := range n.Keys {
		if offset >= start {
			f(k, offset)
		}
	}
	for _, refs := range n.Kids {
		for _, ref := range refs {
			if ref < start {
				continue
			}
			l, err := get(ref)
			if err != nil {
				return err
			}
			if l.Entry == nil {
				continue
			}
			f(l.Entry.Key, ref)
			if len(l.Carry.Index) > depth+1 {
				if err := l.Carry.Index[depth+1].keys(start, depth+1, get, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
