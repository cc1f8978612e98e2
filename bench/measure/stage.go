// Package measure is what the measurements beside real servers share: a stage on which package testserver starts servers
// outside a test, processes that cannot keep a measurement waiting for ever, the middle one of many values, and a handover
// between two processes.
package measure

import (
	"errors"
	"fmt"
	"os"
)

// Stage is where one measure is taken. It lets package testserver start servers outside a test, and takes them away.
type Stage struct{ cleanups []func() }

// failure is what ends a measure early.
type failure struct{ error }

// Perform takes one measure. What [Must] and the methods of the stage end it with is returned.
func Perform(measure func(*Stage)) error {
	s := &Stage{}
	defer s.close()
	return Try(func() { measure(s) })
}

// Try does a part of a measure without which the rest goes on.
func Try(part func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			err = f.error
		}
	}()
	part()
	return nil
}

// close undoes things backwards.
func (s *Stage) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// Must ends the measure on an error.
func Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Helper implements testserver.TB.
func (s *Stage) Helper() {}

// Logf implements testserver.TB.
func (s *Stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatalf implements testserver.TB.
func (s *Stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Skipf ends the measure as well: whoever asked for it should know that it is not there.
func (s *Stage) Skipf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Failed implements testserver.TB.
func (s *Stage) Failed() bool { return false }

// Cleanup has f called at the end of the measure, before what was registered earlier.
func (s *Stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// ErrNoMeasure says that what ran was not what should be measured.
var ErrNoMeasure = errors.New("that is no measurement")
