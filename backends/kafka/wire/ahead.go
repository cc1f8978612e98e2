package wire

import (
	"context"
	"time"
)

// Ahead is a fetch that was sent together with an append, right behind it, and whose answer nobody has waited for yet. A
// broker answers what comes over one connection in order, so it finds the record that the append was about. The answer
// costs who wants it no round trip, and who does not, no time. It keeps a connection until it is taken.
type Ahead struct {
	cn        *conn
	fetch     step
	partition int
	offset    int64
}

// ProduceAhead is Produce, with a fetch from offset on, of at most maxBytes, sent behind the record. The Ahead is nil where
// the error is not.
func (c *Client) ProduceAhead(ctx context.Context, partition int, offset int64, maxBytes int, key, value []byte, headers ...Header) (Appended, *Ahead, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	var done Appended
	var ahead *Ahead
	err := c.onLeader(ctx, PhaseProduce, partition, func(cn *conn) error {
		fetch := cn.fetching(partition, offset, 0, maxBytes)
		fetch.ahead = true
		answers, err := cn.exchangeAll(ctx, cn.producing(ctx, partition, key, value, headers), fetch)
		if err == nil {
			done, err = cn.produced(PhaseProduce, answers[0])
		}
		if err != nil {
			cn.broken = true // the answer to the fetch would come in the way of others
			return err
		}
		cn.lent = true
		ahead = &Ahead{cn, fetch, partition, offset}
		return nil
	})
	return done, ahead, err
}

// Take returns what the fetch has found. It waits for that at most so long, for it should be there. It is called once.
func (a *Ahead) Take(ctx context.Context, atMost time.Duration) (Fetched, error) {
	ctx, cancel := a.cn.client.bound(ctx, 0)
	defer cancel()
	bounded, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	answers, err := a.cn.sendBehind(bounded, []step{a.fetch})
	a.cn.lent = false
	a.cn.client.giveBack(a.cn)
	if err != nil {
		return Fetched{}, err
	}
	return a.cn.fetched(answers[0], a.partition, a.offset)
}

// Drop gives the fetch up, and with it the connection.
func (a *Ahead) Drop() { a.cn.client.drop(a.cn) }
