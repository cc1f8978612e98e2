package main

import (
	"errors"
	"fmt"
)

// A panic in a goroutine ends the whole program at once, by Go's own exit code and a trace. The goroutines that lockrun
// itself starts beside a run catch theirs: asking for the lease, the heartbeat, and each observer. Those of client libraries
// cannot be caught from here; after one of theirs the guard stops COMMAND.

// internalError is a panic that was caught.
type internalError struct{ what any }

func (e *internalError) Error() string {
	return fmt.Sprintf("internal error, please report it: %v", e.what)
}

// isInternal tells whether err is a bug in lockrun, after which the part of it that err came from is not asked anything more:
// nobody knows what it has left locked.
func isInternal(err error) bool {
	var e *internalError
	return errors.As(err, &e)
}

// caught is deferred, and gives tell a panic of the goroutine.
func caught(tell func(error)) {
	if r := recover(); r != nil {
		tell(&internalError{r})
	}
}
