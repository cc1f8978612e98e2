package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// fail makes the error that a caller gets of one that is no answer. Answers are handed on as they are.
func (b *backend) fail(op string, err error) error {
	if err == nil || settled(err) {
		return err
	}
	e := &backends.Error{Op: op, Backend: b.c.name, Err: err}
	e.Remedy, e.Permanent = wire.Advice(err)
	if b.advertised(err) {
		e.Remedy += "; the URL does not have that address: the brokers tell it to clients (advertised.listeners)"
	}
	var u *unfit
	if errors.As(err, &u) {
		e.Remedy, e.Permanent = u.remedy, true
	}
	for _, a := range advice {
		if errors.Is(err, a.err) {
			e.Remedy, e.Permanent = fmt.Sprintf(a.remedy, b.c.wire.Topic), a.permanent
		}
	}
	return e
}

// advertised tells whether err is about connecting to an address that nobody here has written down.
func (b *backend) advertised(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Phase == wire.PhaseDial && e.Broker != "" && !slices.Contains(b.c.bootstrap(), e.Broker)
}

var advice = []struct {
	err       error
	remedy    string
	permanent bool
}{
	{errNoTime, "set message.timestamp.type=LogAppendTime on %s (kafka-configs.sh --alter), or let lockrun init create another topic", true},
	{ledger.ErrNewer, "update lockrun on this host, since all that share the topic %s have to know its records; or see the way out in docs/backends/kafka.md", true},
	{ledger.ErrHole, "set cleanup.policy=delete on %s, and use a topic that was never compacted; lockrun doctor tells more", true},
	{errTorn, "do not delete records of %s while leases are held; asking again helps", false},
}

// settled tells whether err is an answer that the log gave positively, or a request that nothing was asked for.
func settled(err error) bool {
	var own *backends.Error
	return backends.Positive(err) || errors.As(err, &own)
}
