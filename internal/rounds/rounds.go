// Package rounds tells the tests that repeat how often: CI has time for a few rounds, a hunt for what shows seldom takes as
// many as the public report of the fault did. Nothing but tests imports it.
package rounds

import "os"

// Of is few, or full where LOCKRUN_TEST_ROUNDS is "full".
func Of(few, full int) int {
	if Full() {
		return full
	}
	return few
}

// Full tells whether LOCKRUN_TEST_ROUNDS asks for the full counts. A value that means nothing would make a hunt a walk, and
// is a panic.
func Full() bool {
	switch v := os.Getenv("LOCKRUN_TEST_ROUNDS"); v {
	case "", "few":
		return false
	case "full":
		return true
	default:
		panic("LOCKRUN_TEST_ROUNDS is few or full, not " + v)
	}
}
