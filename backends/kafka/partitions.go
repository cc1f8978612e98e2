package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// Two hosts that spread the keys over different numbers of partitions look for one key in two logs, and would both get the
// lease. So every record says by which number its writer went, and the first record of partition 0 that says one has
// decided for the topic: that partition is part of every number. Init appends it; where the topic was made by other means,
// or retention has emptied the partition, whoever comes first does. Those that come at one instant read on until they see
// their own record, and all but the first find that somebody else was first.

// agree returns nil where the topic's number of partitions is the configured one. Where none has been said yet, declare
// tells whether to say it; without, nil means that nothing speaks against it. It asks until the answer is yes, and then no
// more. The error is an *unfit, or that no answer was got.
func (b *backend) agree(ctx context.Context, declare bool) error {
	if b.agreed.Load() {
		return nil
	}
	said, err := b.said(ctx)
	if err == nil && said == 0 {
		if err = b.enough(ctx); err == nil && declare {
			said, err = b.declare(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case said == 0:
		return nil
	case said != b.c.partitions:
		return b.differs(said)
	}
	if err := b.enough(ctx); err != nil {
		return err
	}
	b.agreed.Store(true)
	return nil
}

// differs is the error of a host that goes by another number of partitions than the others.
func (b *backend) differs(said int) error {
	remedy := fmt.Sprintf("say partitions=%d in the URL; another number needs another topic", said)
	if said == 1 {
		remedy = "leave partitions= out of the URL; another number needs another topic"
	}
	return &unfit{b.c.wire.Topic, fmt.Sprintf("other hosts use partitions=%d, and this one %d, so that they would not see each other's leases", said, b.c.partitions), remedy}
}

// enough looks whether the topic has as many partitions as are configured, so that a host does not find out by the keys
// that happen to be in one that is missing.
func (b *backend) enough(ctx context.Context) error {
	if b.c.partitions == 1 {
		return nil
	}
	topic, err := b.client.KnownTopic(ctx)
	if err == nil && len(topic.Partitions) < b.c.partitions { // some may have been added since it was asked for
		topic, err = b.client.Topic(ctx)
	}
	if err != nil {
		return err
	}
	if !topic.Exists && !topic.Denied {
		return wire.ErrNoTopic
	}
	for _, w := range b.c.partitionsWrong(topic) {
		if w.fatal && topic.Exists {
			return &unfit{b.c.wire.Topic, w.cause, w.remedy}
		}
	}
	return nil
}

// said is the number that has been decided on, 0 for none. With one partition the records that are read anyway tell it:
// what carries the state of a key was written by who had made sure of the number.
func (b *backend) said(ctx context.Context) (int, error) {
	if b.c.partitions == 1 {
		said := 0
		err := b.logs[0].with(ctx, func(*ledger.Book) error {
			said = b.logs[0].said
			return nil
		})
		if err != nil || said != 0 {
			return said, err
		}
	}
	return b.firstSaid(ctx, -1)
}

// firstSaid reads partition 0 from its beginning, at least as far as the offset last, for a record that says the number.
func (b *backend) firstSaid(ctx context.Context, last int64) (int, error) {
	for at, size := int64(0), oneRecord; ; size = chunk {
		found, err := b.client.Fetch(ctx, 0, at, 0, size)
		if errors.Is(err, wire.OffsetOutOfRange) {
			start, _, err2 := b.client.Offsets(ctx, 0)
			if err2 != nil || start <= at {
				return 0, errors.Join(err, err2)
			}
			at = start
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, r := range found.Records {
			e, err := ledger.Decode(ledgerRecord(r))
			if errors.Is(err, ledger.ErrNewer) {
				return 0, fmt.Errorf("partition 0: the record at offset %d: %w", r.Offset, err)
			}
			if err == nil && e.Partitions > 0 {
				return e.Partitions, nil
			}
		}
		if found.Next >= found.HighWater && found.Next > last {
			return 0, nil
		}
		at = found.Next
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// declare says the configured number and returns the one that was said first. A number that is said twice decides nothing
// anew.
func (b *backend) declare(ctx context.Context) (int, error) {
	appended, err := b.logs[0].mark(ctx, &ledger.Entry{Kind: ledger.Clock, Partitions: b.c.partitions})
	if err != nil {
		return 0, err
	}
	return b.firstSaid(ctx, appended.Offset)
}

// unfit is about a topic that is there and that leases cannot rely on.
type unfit struct{ topic, cause, remedy string }

func (u *unfit) Error() string { return fmt.Sprintf("the topic %s is there, but %s", u.topic, u.cause) }

// usable makes sure once a process, before anything is appended to l, that the topic is one for leases. A user without the
// right to see its settings has to rely on whoever created it; that its records have the broker's time is seen in each of
// them.
func (b *backend) usable(ctx context.Context, l *log) error {
	if b.looked.Load() {
		return nil
	}
	o, err := b.client.Overview(ctx, l.id, tailLines, chunk, fitSettings...)
	if err == nil {
		l.beginWith(&o)
		if err = o.Refused; err == nil {
			err = b.fitting(o.Settings)
		}
	}
	if err != nil && !errors.Is(err, wire.TopicAuthorizationFailed) {
		return err
	}
	if err := b.agree(ctx, true); err != nil {
		return err
	}
	b.looked.Store(true)
	return nil
}

// beginWith saves whoever begins the book from reading the log's end. Where somebody has the turn, they are doing so.
func (l *log) beginWith(o *wire.Overview) {
	select {
	case l.turn <- struct{}{}:
		if l.book == nil && o.Tail != nil {
			l.tail = o
		}
		<-l.turn
	default:
	}
}

// fitSettings are the settings that leases rely on.
var fitSettings = []string{setTimestamps, setCleanup, setRetention, setRetentionBytes, setRecordBytes}

// fit looks at the topic's settings. The error is an *unfit where it will not do.
func (b *backend) fit(ctx context.Context) error {
	settings, err := b.client.TopicConfig(ctx, fitSettings...)
	if err != nil {
		return err
	}
	return b.fitting(settings)
}

func (b *backend) fitting(settings map[string]string) error {
	for _, w := range b.c.settingsWrong(settings) {
		if w.fatal {
			return &unfit{b.c.wire.Topic, w.cause, w.remedy}
		}
	}
	return nil
}

// Init creates the topic where it is missing, and otherwise looks whether it will do. It changes no topic that is there:
// what is wrong with it is an error, with the command that would change it. At last it says over how many partitions keys
// are spread, unless that has been said.
//
// All of it can be done again, which it is for as long as one exchange may take, where an answer is lost, or the brokers
// have not yet agreed on who leads what and who is in sync.
func (b *backend) Init(ctx context.Context) error {
	for giveUp := time.Now().Add(b.c.wire.Timeout); ; {
		err := b.init(ctx)
		again := wire.Passing(err) || wire.MaybeDone(err) || errors.Is(err, wire.NotEnoughReplicas)
		if !again || time.Now().After(giveUp) || !backends.Sleep(ctx, 20*time.Millisecond) {
			return b.fail("init", err)
		}
	}
}

func (b *backend) init(ctx context.Context) error {
	if err := b.create(ctx); err != nil {
		return err
	}
	if err := b.fit(ctx); err != nil {
		return err
	}
	// Who may create a topic need not be who writes into it: then the first to do so says the number.
	if err := b.agree(ctx, true); !errors.Is(err, wire.TopicAuthorizationFailed) {
		return err
	}
	return nil
}

var _ backends.Initer = (*backend)(nil)
