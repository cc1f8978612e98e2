package boottime

import (
	"testing"
	"time"
)

func TestParseOffset(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"monotonic           0         0\nboottime       100000         5\n": 100000*time.Second + 5,
		"monotonic 7 0\nboottime -3 500000000\n":                             -2500 * time.Millisecond,
		"7 -3 0\n":                                                           -3 * time.Second,
		"":                                                                   0,
		"boottime x 0\n":                                                     0,
		"monotonic 100000 0\n":                                               0,
		"boottime 1\nboottime ":                                              0,
	} {
		if got := parseOffset(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
