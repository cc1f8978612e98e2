package main

import (
	"fmt"
	"os"
)

// stage lets package testserver start servers outside a test, and takes them away.
type stage struct {
	cleanups []func()
	failed   bool
}

// failure is what ends a performance early.
type failure struct{ error }

// perform plays one game.
func perform(game func(*stage) *report) (r *report, err error) {
	s := &stage{}
	defer s.close()
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			s.failed, err = true, f.error
		}
	}()
	return game(s), nil
}

// close undoes things backwards.
func (s *stage) close() {
	for len(s.cleanups) > 0 {
		last := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		last()
	}
}

func (s *stage) Helper() {}

func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Skipf ends the game as well: whoever asked for it should know that it was not played.
func (s *stage) Skipf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *stage) Failed() bool { return s.failed }

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
