package backends

import (
	"errors"
	"testing"
)

// Servers and libraries end what they say with a full stop, after which a remedy is to follow.
func TestErrorsAreNotSentences(t *testing.T) {
	for _, c := range []struct{ cause, remedy, want string }{
		{"user is disabled.", "check user and password", "acquire on b: user is disabled; check user and password"},
		{"user is disabled.", "", "acquire on b: user is disabled"},
		{"it is", "wait", "acquire on b: it is; wait"},
		{"cut short...", "wait", "acquire on b: cut short...; wait"},
	} {
		err := &Error{Op: "acquire", Backend: "b", Err: errors.New(c.cause), Remedy: c.remedy}
		if err.Error() != c.want {
			t.Errorf("%q, want %q", err, c.want)
		}
	}
}
