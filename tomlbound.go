package main

import "bytes"

// maxKeys bounds what the library writes down of a file: for each level of each key the whole way that leads there. In the
// worst of files that mean anything, a megabyte of jobs whose KEYs are as long as may be, that is a third of it; a file that
// is one deep nest, or a long name with many values, would take hours and all memory.
const maxKeys = 32 << 20

// levelWeight is what a level costs beside its name.
const levelWeight = 64

// tooDeep returns the line at which the keys of a file become too much; 0 where they do not. It knows of TOML only what leads
// to a key: what is wrong with the file is for the library to find.
func tooDeep(data []byte) int {
	var k keyWalk
	for at := 0; at < len(data); {
		at += k.step(data[at:])
		if k.spent > maxKeys {
			return 1 + bytes.Count(data[:at], []byte{'\n'})
		}
	}
	return 0
}

// keyWalk knows what the keys weigh that lead to a place in a file.
type keyWalk struct {
	spent  int
	table  int   // the [table] that the line is in
	outer  int   // the inline tables and arrays around
	open   []int // each of those
	name   int   // the key before the last =
	key    int   // what may become a key: all since the last sign that ends one
	header bool  // the line is a [table]
	begun  bool  // the line has something in it
}

// step takes one sign, string or comment, and returns its length.
func (k *keyWalk) step(data []byte) int {
	c := data[0]
	switch {
	case c == '#':
		if end := bytes.IndexByte(data, '\n'); end > 0 {
			return end
		}
		return len(data)
	case c == '"' || c == '\'':
		n := stringEnd(data)
		k.key, k.begun = k.key+n, true
		return n
	case c == '\n':
		k.endLine()
	case c == '[' && !k.begun && len(k.open) == 0:
		k.header, k.begun = true, true
	case c == '{' || c == '[' && !k.header:
		k.push()
	case (c == '}' || c == ']' && !k.header) && len(k.open) > 0:
		last := len(k.open) - 1
		k.outer, k.open = k.outer-k.open[last], k.open[:last]
	case c == ',':
		k.key = 0
	case c == '=':
		k.spend()
		k.name, k.key = k.key, 0
	case c == '.':
		k.key += levelWeight
		k.spend()
	case c != ' ' && c != '\t' && c != '\r':
		k.key, k.begun = k.key+1, true
	}
	return 1
}

func (k *keyWalk) spend() { k.spent += k.table + k.outer + k.key }

func (k *keyWalk) push() {
	k.open = append(k.open, k.name+levelWeight)
	k.outer += k.name + levelWeight
	k.name, k.key, k.begun = 0, 0, true
	k.spend()
}

func (k *keyWalk) endLine() {
	if k.header {
		k.table = 0 // it stands in no other
		k.spend()
		k.table = k.key + levelWeight
	}
	k.key, k.header, k.begun = 0, false, false
}

// stringEnd is the length of the string that data begins with; of all that is left where it has no end.
func stringEnd(data []byte) int {
	quote := data[:1]
	if len(data) > 2 && data[1] == data[0] && data[2] == data[0] {
		quote = data[:3]
	}
	for i := len(quote); i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote[0] == '"':
			i++
		case data[i] == '\n' && len(quote) == 1:
			return i
		case bytes.HasPrefix(data[i:], quote):
			return i + len(quote)
		}
	}
	return len(data)
}
