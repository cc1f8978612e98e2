//go:build race

package ledger

// seedsOf is how many seeds are for one: the race detector makes these tests ten times slower, and has nothing to find in
// what runs in one goroutine.
const seedsOf = 4
