package wire

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Mechanism is a way to log in.
type Mechanism string

// The mechanisms that lockrun knows, under Kafka's names.
const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// byStrength is the order in which they are preferred where none is named.
var byStrength = []Mechanism{ScramSHA512, ScramSHA256, Plain}

// login logs in by the mechanism that was asked for, or else by the strongest that the broker offers.
//
// A broker tells what it offers with its answer to a first choice, and hangs up where it does not offer that one; so the
// choice is kept for the connections to come, and [Client.dial] is asked again by whoever gets a tryAgain.
func (cn *conn) login(ctx context.Context) error {
	chosen := cn.client.mechanism()
	answers, err := cn.send(ctx, step{phase: PhaseSASL, request: &saslHandshakeRequest{Mechanism: string(chosen)}})
	if err != nil {
		return err
	}
	shake := answers[0].(*saslHandshakeResponse)
	if shake.ErrorCode == UnsupportedSASLMechanism && cn.client.config.Mechanism == "" {
		return cn.chooseAgain(chosen, shake.Mechanisms)
	}
	if shake.ErrorCode != 0 {
		return refused(PhaseSASL, cn.address, shake.ErrorCode, offers(shake.Mechanisms))
	}
	err = cn.authenticate(ctx, chosen)
	// A user may have a secret for one of the two SCRAM mechanisms alone, while the broker offers both. Neither gives the
	// password away, so the other may be tried; PLAIN would, and is left to whoever asks for it by name.
	if errors.Is(err, SASLAuthenticationFailed) && cn.client.config.Mechanism == "" && chosen == ScramSHA512 &&
		slices.Contains(shake.Mechanisms, string(ScramSHA256)) && cn.client.weaken(chosen, ScramSHA256) {
		return &tryAgain{failed(PhaseSASL, cn.address, err)}
	}
	return err
}

// chooseAgain takes the strongest mechanism among those that the broker offers.
func (cn *conn) chooseAgain(refusedOne Mechanism, offered []string) error {
	for _, m := range byStrength {
		if slices.Contains(offered, string(m)) && cn.client.weaken(refusedOne, m) {
			return &tryAgain{refused(PhaseSASL, cn.address, UnsupportedSASLMechanism, offers(offered))}
		}
	}
	return &Error{Phase: PhaseSASL, Broker: cn.address, Err: ErrMechanism, Note: offers(offered)}
}

// tryAgain asks for another connection, now that the client knows better what to log in by.
type tryAgain struct{ err *Error }

func (t *tryAgain) Error() string { return t.err.Error() }
func (t *tryAgain) Unwrap() error { return t.err }

func isTryAgain(err error) bool {
	var t *tryAgain
	return errors.As(err, &t)
}

func offers(mechanisms []string) string {
	s := "it offers"
	for i, m := range mechanisms {
		if i > 0 {
			s += ","
		}
		s += " " + m
	}
	if len(mechanisms) == 0 {
		s += " none"
	}
	return s
}

func (cn *conn) authenticate(ctx context.Context, m Mechanism) error {
	user, password := cn.client.config.User, cn.client.config.Password
	if m == Plain {
		_, err := cn.token(ctx, []byte("\x00"+user+"\x00"+password))
		return err
	}
	s, err := newScram(m, user, password)
	if err != nil {
		return failed(PhaseSASL, cn.address, err)
	}
	answer, err := cn.token(ctx, s.first())
	if err != nil {
		return err
	}
	final, err := s.final(answer)
	if err != nil {
		return failed(PhaseSASL, cn.address, err)
	}
	if answer, err = cn.token(ctx, final); err != nil {
		return err
	}
	if err := s.verify(answer); err != nil {
		return failed(PhaseSASL, cn.address, err)
	}
	return nil
}

// token sends one step of the login and returns the broker's.
func (cn *conn) token(ctx context.Context, data []byte) ([]byte, error) {
	answers, err := cn.send(ctx, step{phase: PhaseSASL, request: &saslAuthenticateRequest{Data: data}})
	if err != nil {
		return nil, err
	}
	r := answers[0].(*saslAuthenticateResponse)
	if r.ErrorCode != 0 {
		return nil, refused(PhaseSASL, cn.address, r.ErrorCode, "")
	}
	if r.LifetimeMs > 0 {
		cn.expires = time.Now().Add(time.Duration(r.LifetimeMs) * time.Millisecond * 9 / 10)
	}
	return r.Data, nil
}
