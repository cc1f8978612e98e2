//go:build linux && cgo && !race

package main

// // lockrun starts on one processor; see supervise.Spread.
// const int lockrun_starts_on_one_cpu = 1;
import "C"
