package zookeeper

import (
	"runtime/debug"
	"testing"
	"time"
)

// Collections are put off for a moment and no longer, and what GOGC asks for stays.
func TestCollectionsArePutOff(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	now := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	for usual, during := range map[int]int{100: calmLevel, 20: calmLevel, -1: -1, 1000: 1000} {
		debug.SetGCPercent(usual)
		end := func() {}
		calm(func(_ time.Duration, f func()) { end = f })
		if p := now(); p != during {
			t.Errorf("with %d: %d", usual, p)
		}
		end()
		if p := now(); p != usual {
			t.Errorf("with %d: %d afterwards", usual, p)
		}
	}
}
