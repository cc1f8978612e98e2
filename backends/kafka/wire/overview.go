package wire

import (
	"context"
	"time"
)

// Overview is what a process wants to know before it appends for the first time, asked for in one piece.
type Overview struct {
	Settings map[string]string // of the topic, those that were named; see TopicConfig
	Refused  error             // instead of Settings

	// Tail is the end of the partition, read from the offset From on at the moment Asked. nil: whoever answered does not
	// lead it, or it could not be read.
	Tail  *Fetched
	From  int64
	Asked time.Time

	cluster *Cluster
}

// Overview asks one broker for the cluster, the topic's settings, and the last records of a partition, which it knows if it
// happens to be the leader: so many of them, and what has come since they were counted. What it says about the cluster
// counts from then on.
func (c *Client) Overview(ctx context.Context, partition int, last int64, maxBytes int, names ...string) (Overview, error) {
	registerConfigs()
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	o, err := race(ctx, c, func(ctx context.Context, cn *conn) (Overview, error) {
		return cn.overview(ctx, partition, last, maxBytes, names)
	})
	if err == nil {
		c.view.set(o.cluster)
	}
	return o, err
}

// overview does not wait for the settings before it asks for the records: a broker goes from one request to the next by
// itself.
func (cn *conn) overview(ctx context.Context, partition int, last int64, maxBytes int, names []string) (o Overview, err error) {
	settings := step{phase: PhaseConfig, ahead: true, request: &describeConfigsRequest{Resources: []configResource{
		{Type: resourceTopic, Name: cn.client.config.Topic, Names: names}}}}
	answers, err := cn.exchangeAll(ctx, cn.asking(false), cn.listing(partition, timestampLatest), settings)
	if err != nil {
		return o, err
	}
	if o.cluster, err = cn.told(answers[0]); err != nil {
		cn.broken = true
		return o, err
	}
	p, listErr := cn.listed(answers[1])
	var tail []step
	if listErr == nil {
		cn.known(o.cluster, partition, p.Epoch)
		o.From, o.Asked = max(p.Offset-last, 0), time.Now()
		tail = append(tail, cn.fetching(partition, o.From, 0, maxBytes))
	}
	if answers, err = cn.sendBehind(ctx, []step{settings}, tail...); err != nil {
		return o, err
	}
	o.Settings, o.Refused = cn.described(answers[0])
	if tail != nil {
		if found, err := cn.fetched(answers[1], partition, o.From); err == nil && found.Next >= p.Offset {
			o.Tail = &found
		}
	}
	return o, nil
}

// known gives the connection the address under which the cluster speaks of the broker, where that has turned out to lead a
// partition in that epoch, so that it is not dialled once more. An epoch has one leader.
func (cn *conn) known(cluster *Cluster, partition int, epoch int32) {
	if leader, err := cluster.Leader(partition); err == nil && cluster.Topic.Partitions[partition].Epoch == epoch {
		cn.address = leader.Addr()
	}
}
