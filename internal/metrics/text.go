package metrics

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteTo writes the set in Prometheus' text format, keys in byte order.
func (s *Set) WriteTo(w io.Writer) (int64, error) {
	t := &text{w: bufio.NewWriterSize(w, 64<<10)}
	keys := make([]string, 0, len(s.keys))
	for key := range s.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i := range families {
		if f := &families[i]; s.Observed || !f.observed {
			t.family(f, keys, s)
		}
	}
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.n, t.err
}

// text writes samples. Lines are built in one buffer: a scrape of 10,000 keys has half a million of them.
type text struct {
	w    *bufio.Writer
	line []byte
	head bool // the family's head is written
	n    int64
	err  error
}

func (t *text) family(f *family, keys []string, s *Set) {
	t.head = false
	for _, key := range keys {
		if t.err != nil {
			return
		}
		k := s.keys[key]
		if f.hist != nil {
			t.histogram(f, key, f.hist(k))
			continue
		}
		f.each(k, func(lv string, v float64) { t.sample(f, "", key, f.label, lv, v) })
	}
}

// histogram writes cumulative buckets, as the format has them.
func (t *text) histogram(f *family, key string, h *histogram) {
	n := uint64(0)
	for i, bound := range h.bounds {
		n += h.counts[i]
		t.sample(f, "_bucket", key, "le", number(bound), float64(n))
	}
	total := float64(h.total())
	t.sample(f, "_bucket", key, "le", "+Inf", total)
	t.sample(f, "_sum", key, "", "", h.sum)
	t.sample(f, "_count", key, "", "", total)
}

func (t *text) sample(f *family, suffix, key, label, lv string, v float64) {
	b := t.line[:0]
	if !t.head {
		t.head = true
		b = append(b, "# HELP "+f.name+" "+f.help+"\n# TYPE "+f.name+" "+f.typ+"\n"...)
	}
	b = append(append(append(b, f.name...), suffix...), `{key="`...)
	b = appendEscaped(b, key)
	if label != "" {
		b = append(append(append(b, `",`...), label...), `="`...)
		b = appendEscaped(b, lv)
	}
	b = append(b, `"} `...)
	b = append(strconv.AppendFloat(b, v, 'f', -1, 64), '\n')
	t.line = b
	if t.err == nil {
		_, t.err = t.w.Write(b)
		t.n += int64(len(b))
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// appendEscaped writes a label's value: backslash, quote and newline are the only bytes that mean something.
func appendEscaped(b []byte, s string) []byte {
	if !strings.ContainsAny(s, "\\\"\n") {
		return append(b, s...)
	}
	for i := range len(s) {
		switch s[i] {
		case '\\', '"':
			b = append(b, '\\', s[i])
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, s[i])
		}
	}
	return b
}
