//go:build unix && !linux && !darwin

package boottime

import "time"

// The number differs between the systems and x/sys does not name it on each of them.
const fallback = clock

func readOffset() time.Duration { return 0 }

func readBootID() string { return "" }
