//go:build linux && cgo

package supervise

// #include "native.h"
import "C"

// WasClosed tells whether a standard descriptor was not open when the program was executed. Go's runtime opens /dev/null
// there before anybody can look, so that what is written to it seems to arrive. A build without C cannot know, and says
// no.
func WasClosed(fd int) bool { return fd >= 0 && fd <= 2 && C.lockrun_closed()>>fd&1 != 0 }
