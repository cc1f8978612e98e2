package main

import "time"

// lateness knows when this machine was too busy to run what was due. It explains leases that were lost without a fault.
type lateness struct{ all []delay }

type delay struct{ at, by time.Duration }

const (
	latenessEvery = 10 * time.Millisecond
	latenessNoted = 10 * time.Millisecond
)

func (l *lateness) note(at, by time.Duration) {
	if by >= latenessNoted {
		l.all = append(l.all, delay{at, by})
	}
}

// most is the greatest delay between two instants.
func (l *lateness) most(from, to time.Duration) (most time.Duration) {
	for _, d := range l.all {
		if d.at >= from && d.at-d.by <= to {
			most = max(most, d.by)
		}
	}
	return most
}
