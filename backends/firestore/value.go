package firestore

import (
	"maps"
	"strconv"
	"strings"
	"time"
)

// fields are those of a document, or of a map inside one. What does not apply is left out, never null.
type fields map[string]value

// value is one value as the REST interface writes it. Kinds that lockrun does not write are not read either.
type value struct {
	Str  *string   `json:"stringValue,omitempty"`
	Int  *string   `json:"integerValue,omitempty"`
	Bool *bool     `json:"booleanValue,omitempty"`
	Time *string   `json:"timestampValue,omitempty"`
	Ref  *string   `json:"referenceValue,omitempty"`
	Map  *mapValue `json:"mapValue,omitempty"`
}

type mapValue struct {
	Fields fields `json:"fields"`
}

func str(s string) value {
	s = strings.ToValidUTF8(s, "?")
	return value{Str: &s}
}

func num(n int64) value {
	s := strconv.FormatInt(n, 10)
	return value{Int: &s}
}

func when(t time.Time) value {
	s := t.UTC().Format(time.RFC3339Nano)
	return value{Time: &s}
}

func flag(b bool) value { return value{Bool: &b} }

func sub(f fields) value { return value{Map: &mapValue{f}} }

// The setters leave zero values out.

func (f fields) setStr(name, s string) {
	if s != "" {
		f[name] = str(s)
	}
}

func (f fields) setNum(name string, n int64) {
	if n != 0 {
		f[name] = num(n)
	}
}

func (f fields) setFlag(name string, b bool) {
	if b {
		f[name] = flag(b)
	}
}

func (f fields) setTime(name string, t time.Time) {
	if !t.IsZero() {
		f[name] = when(t)
	}
}

// setLength keeps microseconds, as fine as Firestore's own times are.
func (f fields) setLength(name string, d time.Duration) { f.setNum(name, micros(d)) }

// micros rounds up, so that nothing positive becomes zero.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func (f fields) has(name string) bool { _, ok := f[name]; return ok }

func (f fields) str(name string) string {
	if s := f[name].Str; s != nil {
		return *s
	}
	return ""
}

func (f fields) num(name string) int64 { return f[name].num() }

func (v value) num() int64 {
	if v.Int == nil {
		return 0
	}
	n, _ := strconv.ParseInt(*v.Int, 10, 64)
	return n
}

func (f fields) flag(name string) bool { b := f[name].Bool; return b != nil && *b }

func (f fields) time(name string) time.Time {
	if s := f[name].Time; s != nil {
		return parseTime(*s)
	}
	return time.Time{}
}

func (f fields) length(name string) time.Duration {
	return time.Duration(f.num(name)) * time.Microsecond
}

func (f fields) sub(name string) fields {
	if m := f[name].Map; m != nil {
		return m.Fields
	}
	return nil
}

// parseTime reads what the server wrote; what is no time is none.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// with is f and more, which counts where both have a field.
func (f fields) with(more fields) fields {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}
