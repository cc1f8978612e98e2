package metrics

import "sort"

// histogram counts observations by size.
type histogram struct {
	bounds []float64 // shared by all of a kind
	counts []uint64  // one a bound, each without those below it, and one for what is larger than all
	sum    float64
}

func (h *histogram) init(bounds []float64) {
	h.bounds, h.counts = bounds, make([]uint64, len(bounds)+1)
}

func (h *histogram) observe(v float64) {
	v = max(v, 0) // a clock that was set back
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.sum += v
}

// total is how many observations there were.
func (h *histogram) total() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}
