package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Appended tells where and when a record was appended.
type Appended struct {
	Offset   int64
	Time     time.Time // the broker's clock, whole ms, UTC; zero where the topic keeps the producers' times
	LogStart int64     // the first offset that retention has left
}

// Fetched is what a fetch found.
type Fetched struct {
	Records   []Record
	Next      int64 // where to go on; above the last record's offset where compaction has removed what followed
	HighWater int64 // the first offset that cannot be read yet
	LogStart  int64 // the first offset that retention has left
}

// Produce appends one record and returns when all replicas in sync have it (acks=all).
//
// It looks for the leader as long as it may, and sends the record once. [MaybeDone] tells of its error whether the record
// may be in the log all the same, now or a moment later.
func (c *Client) Produce(ctx context.Context, partition int, key, value []byte, headers ...Header) (Appended, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	var done Appended
	err := c.onLeader(ctx, PhaseProduce, partition, func(cn *conn) error {
		answers, err := cn.exchangeAll(ctx, cn.producing(ctx, partition, key, value, headers))
		if err == nil {
			done, err = cn.produced(PhaseProduce, answers[0])
		}
		return err
	})
	return done, err
}

// Mark is Produce for a record that says nothing more where it is there twice: it is sent again where the answer does not
// tell whether it has been appended.
func (c *Client) Mark(ctx context.Context, partition int, key, value []byte) (Appended, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	var done Appended
	err := c.onLeader(ctx, PhaseMark, partition, func(cn *conn) error {
		bounded, cancel := c.attempt(ctx, 0)
		defer cancel()
		s := cn.producing(bounded, partition, key, value, nil)
		s.phase = PhaseMark
		answers, err := cn.exchangeAll(bounded, s)
		if err == nil {
			done, err = cn.produced(PhaseMark, answers[0])
		}
		return err
	})
	return done, err
}

// producing is the request to append a record.
func (cn *conn) producing(ctx context.Context, partition int, key, value []byte, headers []Header) step {
	return step{phase: PhaseProduce, request: &produceRequest{
		Acks:      -1,
		TimeoutMs: leftMs(ctx),
		Topics: []produceTopic{{Name: cn.client.config.Topic, Partitions: []producePartition{
			{ID: int32(partition), Records: encodeBatch(key, value, headers, time.Now())}}}},
	}}
}

// produced reads the answer to it.
func (cn *conn) produced(phase Phase, answer protocol.Message) (Appended, error) {
	r := answer.(*produceResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return Appended{}, &Error{Phase: phase, Broker: cn.address, Err: ErrNotKafka, Sent: phase.changes()}
	}
	p := r.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		e := refused(phase, cn.address, p.ErrorCode, p.Message)
		e.Sent = phase.changes() && !p.ErrorCode.unappended()
		return Appended{}, e
	}
	done := Appended{Offset: p.BaseOffset, LogStart: p.LogStart}
	if p.LogAppendTime >= 0 {
		done.Time = time.UnixMilli(p.LogAppendTime).UTC()
	}
	return done, nil
}

// Fetch reads records from offset on. Where there is none yet it waits for one, at most maxWait, and then returns none.
// maxBytes bounds what is read, but never below one batch. The error is OffsetOutOfRange where the log begins behind
// offset, or ends before it.
func (c *Client) Fetch(ctx context.Context, partition int, offset int64, maxWait time.Duration, maxBytes int) (Fetched, error) {
	ctx, cancel := c.bound(ctx, maxWait)
	defer cancel()
	var found Fetched
	err := c.onLeader(ctx, PhaseFetch, partition, func(cn *conn) error {
		bounded, cancel := c.attempt(ctx, maxWait)
		defer cancel()
		answers, err := cn.exchangeAll(bounded, cn.fetching(partition, offset, maxWait, maxBytes))
		if err == nil {
			found, err = cn.fetched(answers[0], partition, offset)
		}
		return err
	})
	return found, err
}

// fetching is the request to read from a partition.
func (cn *conn) fetching(partition int, offset int64, maxWait time.Duration, maxBytes int) step {
	return step{phase: PhaseFetch, request: &fetchRequest{
		ReplicaID:    -1,
		MaxWaitMs:    int32(maxWait.Milliseconds()),
		MinBytes:     1,
		MaxBytes:     int32(maxBytes),
		SessionEpoch: -1, // no session
		Topics: []fetchTopic{{Name: cn.client.config.Topic, Partitions: []fetchPartition{
			{ID: int32(partition), CurrentEpoch: -1, Offset: offset, LogStart: -1, MaxBytes: int32(maxBytes)}}}},
	}}
}

// fetched reads the answer to it.
func (cn *conn) fetched(answer protocol.Message, partition int, offset int64) (Fetched, error) {
	r := answer.(*fetchResponse)
	if r.ErrorCode != 0 {
		return Fetched{}, refused(PhaseFetch, cn.address, r.ErrorCode, "")
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return Fetched{}, failed(PhaseFetch, cn.address, ErrNotKafka)
	}
	p := r.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return Fetched{HighWater: p.HighWater, LogStart: p.LogStart}, refused(PhaseFetch, cn.address, p.ErrorCode, "")
	}
	found := Fetched{HighWater: p.HighWater, LogStart: p.LogStart}
	var err error
	found.Records, found.Next, err = decodeBatches(p.Records, offset)
	if err != nil {
		return found, failed(PhaseFetch, cn.address, fmt.Errorf("partition %d: %w", partition, err))
	}
	return found, nil
}

// Offsets tells where a partition's log begins, and the offset of the record that will be appended next.
func (c *Client) Offsets(ctx context.Context, partition int) (start, end int64, err error) {
	if start, err = c.list(ctx, partition, timestampEarliest); err != nil {
		return 0, 0, err
	}
	end, err = c.list(ctx, partition, timestampLatest)
	return start, end, err
}

// End is the offset of the record that will be appended next, as far as readers see it: the high water mark.
func (c *Client) End(ctx context.Context, partition int) (int64, error) {
	return c.list(ctx, partition, timestampLatest)
}

// Epoch is that of the partition's leader. It rises with each change of the leader, whether or not a record has been
// appended under the new one.
func (c *Client) Epoch(ctx context.Context, partition int) (int32, error) {
	found, err := c.listed(ctx, partition, timestampLatest)
	return found.Epoch, err
}

// What Kafka understands in the place of a time.
const (
	timestampLatest   = -1
	timestampEarliest = -2
)

func (c *Client) list(ctx context.Context, partition int, timestamp int64) (int64, error) {
	found, err := c.listed(ctx, partition, timestamp)
	return found.Offset, err
}

func (c *Client) listed(ctx context.Context, partition int, timestamp int64) (listedOffsetsPartition, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	var found listedOffsetsPartition
	err := c.onLeader(ctx, PhaseOffsets, partition, func(cn *conn) error {
		bounded, cancel := c.attempt(ctx, 0)
		defer cancel()
		var err error
		found, err = cn.list(bounded, partition, timestamp)
		return err
	})
	return found, err
}

func (cn *conn) list(ctx context.Context, partition int, timestamp int64) (none listedOffsetsPartition, err error) {
	answers, err := cn.exchangeAll(ctx, cn.listing(partition, timestamp))
	if err != nil {
		return none, err
	}
	return cn.listed(answers[0])
}

// listing is the request for the offset that belongs to a time.
func (cn *conn) listing(partition int, timestamp int64) step {
	return step{phase: PhaseOffsets, request: &listOffsetsRequest{
		ReplicaID: -1,
		Topics: []listOffsetsTopic{{Name: cn.client.config.Topic, Partitions: []listOffsetsPartition{
			{ID: int32(partition), CurrentEpoch: -1, Timestamp: timestamp}}}},
	}}
}

// listed reads the answer to it.
func (cn *conn) listed(answer protocol.Message) (none listedOffsetsPartition, err error) {
	r := answer.(*listOffsetsResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return none, failed(PhaseOffsets, cn.address, ErrNotKafka)
	}
	p := r.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return none, refused(PhaseOffsets, cn.address, p.ErrorCode, "")
	}
	return p, nil
}

// attempt bounds one try at a read to a part of the whole, so that a leader that is frozen, and soon deposed, leaves time
// to ask the next one.
func (c *Client) attempt(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, wait+max(c.config.Timeout/2, time.Second))
}

// leftMs is what is left of ctx, for a broker that waits for its replicas.
func leftMs(ctx context.Context) int32 {
	deadline, _ := ctx.Deadline()
	return int32(max(time.Until(deadline).Milliseconds(), 1))
}

// firstPause is before the second try; it doubles up to lastPause.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// onLeader lets do ask the leader of a partition, and again after what may pass, until ctx ends. It is not repeated where
// what was asked may have been done.
func (c *Client) onLeader(ctx context.Context, p Phase, partition int, do func(*conn) error) error {
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.tryLeader(ctx, p, partition, do)
		if err == nil || MaybeDone(err) || !repeatable(err) {
			return err
		}
		// What ended because time ran out tells less than what went wrong before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			if c.ctx.Err() != nil {
				return failed(p, "", ErrClosed)
			}
			return last
		}
	}
}

func (c *Client) tryLeader(ctx context.Context, p Phase, partition int, do func(*conn) error) error {
	seen, err := c.current(ctx)
	if err != nil {
		return err
	}
	if seen.Topic.Denied {
		return failed(p, "", TopicAuthorizationFailed)
	}
	leader, err := seen.Leader(partition)
	if err != nil {
		c.doubt(seen)
		return failed(p, "", err)
	}
	cn, err := c.connection(ctx, leader.Addr())
	if err != nil {
		c.doubt(seen)
		return err
	}
	err = do(cn)
	c.giveBack(cn)
	if err != nil && !errors.Is(err, OffsetOutOfRange) {
		c.doubt(seen)
	}
	return err
}

// Passing tells whether a broker has answered that it cannot now, and it or another will in a moment.
func Passing(err error) bool {
	var code Code
	if errors.As(err, &code) {
		// A leader that does not know its partition has just been made one, or the topic is gone, which metadata will tell.
		return code.passing() || code == UnknownTopic
	}
	return errors.Is(err, ErrNoLeader)
}

// repeatable tells whether asking again may help: not where a broker has said no, nor where what is asked cannot be.
func repeatable(err error) bool {
	if Passing(err) {
		return true
	}
	if errors.As(err, new(Code)) {
		return false
	}
	_, permanent := Advice(err)
	return !permanent && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrBatch)
}
