package zookeeper

import (
	"runtime/debug"
	"sync"
	"time"
)

// The client makes two buffers of 1.5 MB for a connection and hardly touches them; but they count, and would set off a
// collection of garbage in the middle of each run, for nothing: it takes longer than the shortest exchange with the servers.
// So the first one has to wait until a short run is over.
const (
	calmFor   = 50 * time.Millisecond
	calmLevel = 400 // percent; the least heap that is collected goes with it, from 4 to 16 MB
)

var keepCalm = sync.OnceFunc(func() { calm(func(d time.Duration, f func()) { time.AfterFunc(d, f) }) })

// calm puts collections off and has later put things right again.
func calm(later func(time.Duration, func())) {
	usual := debug.SetGCPercent(calmLevel)
	if usual < 0 || usual > calmLevel { // somebody has asked for fewer of them
		debug.SetGCPercent(usual)
		return
	}
	later(calmFor, func() { debug.SetGCPercent(usual) })
}
