package main

import (
	"errors"
	"fmt"
	"os"
)

// stage is where one measure is taken: it lets package testserver start servers outside a test, and takes them away.
type stage struct{ cleanups []func() }

// failure is what ends a measure early.
type failure struct{ error }

// perform takes one measure and prints it.
func perform(measure func(*stage) []row) (err error) {
	s := &stage{}
	defer s.close()
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			err = f.error
		}
	}()
	for _, r := range measure(s) {
		fmt.Println(r)
	}
	return nil
}

// close undoes things backwards.
func (s *stage) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// must ends the measure on an error.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func (s *stage) Helper() {}

func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Skipf ends the measure as well: whoever asked for it should know that it is not there.
func (s *stage) Skipf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *stage) Failed() bool { return false }

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// errNoMeasure says that what ran was not what should be measured.
var errNoMeasure = errors.New("that is no measurement")
