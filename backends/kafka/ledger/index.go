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

//
// Nodes are broad, since each level costs who looks for a key a question to the broker, and a reference takes four bytes:
// up to some ten thousand keys there is one level below the root.

const (
	bits     = 8
	fanout   = 1 << bits // children of a node
	maxDepth = 7         // of the hash's 64 bits the last 8 are not used; deeper, a leaf just grows
)

// Node is one node of the index. It is a leaf, which has the last record of each of its keys, or a branch.
type Node struct {
	Keys map[string]int64 `json:"keys,omitempty"`
	Kids kids             `json:"kids,omitempty"`
}

// tree is what an index is of: of the keys of a partition, or of the run ids of a key.
type tree struct {
	name  func(*Entry) string // under which a record is found
	nodes func(*Carry) []Node // where records have their path
	leaf  int                 // how many names a node has before it is split
	skip  int                 // levels that are one node wide
}

var byKey = &tree{
	name:  func(e *Entry) string { return e.Key },
	nodes: func(c *Carry) []Node { return c.Index },
	leaf:  64,
}

// hash is where a name is in an index. It is a cryptographic one so that nobody can choose names that end up together.
type hash uint64

func (t *tree) hash(name string) hash {
	sum := sha256.Sum256([]byte(name))
	return hash(binary.BigEndian.Uint64(sum[:8])) >> (bits * t.skip)
}

// place is the child of a node of that depth below which the hash is.
func (h hash) place(depth int) int { return int(h << (bits * depth) >> (64 - bits)) }

// together tells whether two hashes are below the same node of that depth.
func (h hash) together(o hash, depth int) bool {
	return depth == 0 || h>>(64-bits*depth) == o>>(64-bits*depth)
}

func (n *Node) clone() Node {
	c := Node{}
	if n.Keys != nil {
		c.Keys = make(map[string]int64, len(n.Keys))
		for k, v := range n.Keys {
			c.Keys[k] = v
		}
	}
	c.Kids = n.Kids.clone()
	return c
}

// empty tells whether a branch refers to nothing.
func (n *Node) empty() bool {
	return !slices.ContainsFunc(n.Kids, func(refs []int64) bool { return len(refs) > 0 })
}

// put says that name has a record at that offset. The node is of that depth.
func (n *Node) put(t *tree, name string, offset int64, depth int) {
	if n.Kids != nil {
		n.refer(t.hash(name).place(depth), offset)
		return
	}
	if n.Keys == nil {
		n.Keys = map[string]int64{}
	}
	n.Keys[name] = max(n.Keys[name], offset)
	if len(n.Keys) > t.leaf && depth < maxDepth {
		n.split(t, depth)
	}
}

// split makes a branch of a leaf. The names' records have no node below this one; each stands for itself.
func (n *Node) split(t *tree, depth int) {
	keys := n.Keys
	n.Keys, n.Kids = nil, make(kids, fanout)
	for k, offset := range keys {
		n.refer(t.hash(k).place(depth), offset)
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
func (n *Node) add(t *tree, l Line, depth int) {
	name := t.name(l.Entry)
	if n.Kids != nil && len(t.nodes(l.Carry)) > depth+1 {
		kid := t.hash(name).place(depth)
		n.Kids[kid] = slices.DeleteFunc(n.Kids[kid], func(ref int64) bool { return ref <= l.Carry.AsOf })
	}
	n.put(t, name, l.Offset, depth)
}

// merge adds what another node of the same place says.
func (n *Node) merge(t *tree, o *Node, depth int) {
	if o.Kids != nil && n.Kids == nil {
		n.split(t, depth)
	}
	for k, offset := range o.Keys {
		n.put(t, k, offset, depth)
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
		for _, offset := range n.Keys {
			if offset < 0 {
				return false
			}
		}
	}
	return true
}

// path is one name's way through an index.
type path []Node

func (p path) clone() []Node {
	c := make([]Node, len(p))
	for i := range p {
		c[i] = p[i].clone()
	}
	return c
}

// add takes a new record into the nodes that it shares with the one whose path this is.
func (p *path) add(t *tree, own hash, l Line) {
	name := t.name(l.Entry)
	for depth, other := 0, t.hash(name); depth < len(*p) && own.together(other, depth); depth++ {
		n := &(*p)[depth]
		leaf := n.Keys
		n.add(t, l, depth)
		if n.Kids != nil && depth == len(*p)-1 { // it has just been split: what of it is below, with the path's own
			below := Node{}
			for k, at := range leaf {
				if k != name && own.together(t.hash(k), depth+1) {
					below.put(t, k, at, depth+1)
				}
			}
			*p = append(*p, below)
		}
	}
}

// find walks down to a name. get returns the line at an offset, one without an entry where it means nothing; it is asked
// for nothing before start. The result is the offset of the name's last record, -1 for none, and the nodes on the way.
func (root *Node) find(t *tree, name string, start int64, get func(int64) (Line, error)) (int64, path, error) {
	p, h := path{root.clone()}, t.hash(name)
	for depth := 0; ; depth++ {
		n := &p[depth]
		if n.Kids == nil {
			if offset, ok := n.Keys[name]; ok && offset >= start {
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
			below.put(t, t.name(l.Entry), ref, depth+1)
			if nodes := t.nodes(l.Carry); len(nodes) > depth+1 {
				below.merge(t, &nodes[depth+1], depth+1)
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
