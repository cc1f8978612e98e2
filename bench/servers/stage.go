package main

import (
	"fmt"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// stage is where one measure is taken.
type stage = measure.Stage

// perform takes one measure and prints it.
func perform(take func(*stage) []row) error {
	return measure.Perform(func(s *stage) {
		for _, r := range take(s) {
			fmt.Println(r)
		}
	})
}

// must ends the measure on an error.
func must(err error) { measure.Must(err) }

// errNoMeasure says that what ran was not what should be measured.
var errNoMeasure = measure.ErrNoMeasure

func median[T time.Duration | float64](all []T) T { return measure.Median(all) }
