//go:build !race

package ledger

const seedsOf = 1
