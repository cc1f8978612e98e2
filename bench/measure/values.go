package measure

import (
	"slices"
	"time"
)

// Median is the middle one, or the later of the two in the middle.
func Median[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
