package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse reads what WriteTo wrote of an observed set. Anything else is an error that names the line: a file that holds
// something different was not written by lockrun, or is damaged, and must not be written over.
func Parse(data string) (*Set, error) {
	s := NewSet(true)
	n := 0
	for line := range strings.SplitSeq(data, "\n") {
		n++
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.read(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for key, k := range s.keys {
		for _, h := range []*histogram{&k.acquire, &k.wait, &k.hold} {
			if err := h.decumulate(); err != nil {
				return nil, fmt.Errorf("key %q: %w", key, err)
			}
		}
	}
	return s, nil
}

var (
	errNoSample  = errors.New("is no sample of lockrun's metrics")
	errNoBuckets = errors.New("the buckets of a histogram do not add up")
)

// read takes one sample. A metric of a newer lockrun is passed over.
func (s *Set) read(line string) error {
	name, rest, ok := strings.Cut(line, "{")
	if !ok || !strings.HasPrefix(name, "lockrun_") {
		return errNoSample
	}
	labels, rest, ok := readLabels(rest)
	if !ok || len(labels) == 0 || labels[0].name != "key" || labels[0].value == "" {
		return errNoSample
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(rest, " "), 64)
	if err != nil || math.IsNaN(v) || v < 0 || math.IsInf(v, 0) {
		return errNoSample
	}
	f, suffix := findFamily(name)
	if f == nil {
		return nil
	}
	k, lv := s.Key(labels[0].value), ""
	if len(labels) > 1 {
		lv = labels[1].value
	}
	switch {
	case f.hist != nil && !f.hist(k).read(suffix, lv, v), f.hist == nil && !f.set(k, lv, v):
		return errNoSample
	}
	return nil
}

// findFamily finds the metric that a sample belongs to, and what a histogram's sample has behind its name.
func findFamily(name string) (f *family, suffix string) {
	for i := range families {
		f := &families[i]
		rest, ok := strings.CutPrefix(name, f.name)
		if ok && (rest == "" && f.hist == nil || f.hist != nil && slices.Contains([]string{"_bucket", "_sum", "_count"}, rest)) {
			return f, rest
		}
	}
	return nil, ""
}

// read takes a histogram's sample; buckets stay cumulative until all are there.
func (h *histogram) read(suffix, le string, v float64) bool {
	switch suffix {
	case "_sum":
		h.sum = v
		return true
	case "_count": // the same as the bucket +Inf
		return h.counts[len(h.counts)-1] == uint64(v)
	}
	if le == "+Inf" {
		h.counts[len(h.bounds)] = uint64(v)
		return true
	}
	bound, err := strconv.ParseFloat(le, 64)
	i := slices.Index(h.bounds, bound)
	if err != nil || i < 0 {
		return false
	}
	h.counts[i] = uint64(v)
	return true
}

func (h *histogram) decumulate() error {
	for i := len(h.counts) - 1; i > 0; i-- {
		if h.counts[i] < h.counts[i-1] {
			return errNoBuckets
		}
		h.counts[i] -= h.counts[i-1]
	}
	return nil
}

type label struct{ name, value string }

// readLabels reads name="value",... up to the closing brace and returns what comes after it.
func readLabels(text string) (labels []label, rest string, ok bool) {
	for {
		name, after, found := strings.Cut(text, `="`)
		if !found {
			return nil, "", false
		}
		value, after, found := readValue(after)
		if !found || after == "" {
			return nil, "", false
		}
		labels = append(labels, label{name, value})
		switch after[0] {
		case '}':
			return labels, after[1:], true
		case ',':
			text = after[1:]
		default:
			return nil, "", false
		}
	}
}

// readValue undoes appendEscaped, up to the closing quote.
func readValue(text string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return b.String(), text[i+1:], true
		case '\\':
			i++
			if i == len(text) {
				return "", "", false
			}
			if c = text[i]; c == 'n' {
				c = '\n'
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
