package backends

import (
	"context"
	"time"
)

// Options are what every driver is opened with, beside its URL.
type Options struct {
	// Keep bounds the history; zero fields mean those of DefaultKeep.
	Keep Keep

	// ReadOnly says that nothing will be written, so that an asking command neither creates a store nor needs the right
	// to write. The embedded store's absence then reads as no keys and no history.
	ReadOnly bool

	// Password is used where the URL has none. It comes from a file or from the configuration and is never printed.
	Password string

	// Timeout bounds whatever the driver does without a context of its own, like dialling again. 0: 5 s.
	Timeout time.Duration
}

// DefaultTimeout is the bound on an exchange with the store where nobody asked for another.
const DefaultTimeout = 5 * time.Second

// WithDefaults returns o with every zero field that has a default set to it.
func (o Options) WithDefaults() Options {
	if o.Keep.Runs == 0 {
		o.Keep.Runs = DefaultKeep.Runs
	}
	if o.Keep.Age == 0 {
		o.Keep.Age = DefaultKeep.Age
	}
	if o.Keep.DoneAge == 0 {
		o.Keep.DoneAge = DefaultKeep.DoneAge
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return o
}

// OpenFunc is what each driver offers to the table of schemes. It returns *UsageError for a URL that has to be
// corrected, and *Error for a store that cannot be opened.
type OpenFunc func(ctx context.Context, u *URL, o Options) (Backend, error)
