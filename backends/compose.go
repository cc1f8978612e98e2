package backends

import (
	"errors"
	"slices"
)

// What decorators, backends made of other backends, need to know of those.

// Positive tells whether err is something that a store, or a check before it was asked, positively said. All other errors
// but nil mean that the answer is not known.
func Positive(err error) bool {
	var held *HeldError
	var done *DoneError
	var usage *UsageError
	return errors.As(err, &held) || errors.As(err, &done) || errors.As(err, &usage) || errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld)
}

// OfSameRun finds, among the states of a key in one store, the lease of the run that has like in another store: the one with
// the same token, else the only one with the same holder, host and process. Nil means that there is none, or that nobody can
// tell which it is.
func OfSameRun(states []State, like State) *State {
	if i := slices.IndexFunc(states, func(s State) bool { return s.State == Held && s.Key == like.Key && s.Token == like.Token }); i >= 0 {
		return &states[i]
	}
	var found *State
	for i := range states {
		if s := &states[i]; s.State == Held && s.Key == like.Key && s.Holder == like.Holder && s.Host == like.Host && s.PID == like.PID {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// Historian is the backend that answers b's History: b itself, or one behind it where b is made of several. It is the one
// to ask for Walker and Follower.
func Historian(b Backend) Backend {
	for {
		d, ok := b.(interface{ Historian() Backend })
		if !ok {
			return b
		}
		next := d.Historian()
		if next == nil || next == b {
			return b
		}
		b = next
	}
}
