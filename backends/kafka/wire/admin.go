package wire

import (
	"context"
	"errors"
	"time"
)

// TopicSpec is how a topic is created.
type TopicSpec struct {
	Partitions  int
	Replication int // -1: the cluster's default
	Config      map[string]string
}

// CreateTopic creates the topic and returns when it can be written. The error is TopicExists where somebody was quicker.
func (c *Client) CreateTopic(ctx context.Context, spec TopicSpec) error {
	registerAdmin()
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	request := createTopic{Name: c.config.Topic, Partitions: int32(spec.Partitions), Replication: int16(spec.Replication)}
	for name, value := range spec.Config {
		request.Configs = append(request.Configs, createTopicConfig{name, value})
	}
	_, err := race(ctx, c, func(ctx context.Context, cn *conn) (struct{}, error) {
		return struct{}{}, cn.create(ctx, request)
	})
	if err != nil {
		return err
	}
	return c.awaitTopic(ctx, spec.Partitions)
}

func (cn *conn) create(ctx context.Context, t createTopic) error {
	answer, err := cn.exchange(ctx, PhaseCreate, &createTopicsRequest{Topics: []createTopic{t}, TimeoutMs: leftMs(ctx)})
	if err != nil {
		return err
	}
	r := answer.(*createTopicsResponse)
	if len(r.Topics) != 1 {
		return failed(PhaseCreate, cn.address, ErrNotKafka)
	}
	if code := r.Topics[0].ErrorCode; code != 0 {
		return refused(PhaseCreate, cn.address, code, r.Topics[0].Message)
	}
	return nil
}

// awaitTopic waits until a broker knows the topic with a leader for each partition: they learn of it one after the other.
func (c *Client) awaitTopic(ctx context.Context, partitions int) error {
	for {
		found, err := c.ask(ctx, false)
		if err == nil {
			if err = found.ready(partitions); err == nil {
				return nil
			}
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return failed(PhaseCreate, "", err)
		}
	}
}

// ready tells what is still missing.
func (c *Cluster) ready(partitions int) error {
	if len(c.Topic.Partitions) < partitions {
		return ErrNoTopic
	}
	for i := range c.Topic.Partitions {
		if _, err := c.Leader(i); err != nil {
			return err
		}
	}
	return nil
}

// Resource types of Kafka.
const (
	resourceTopic  = 2
	resourceBroker = 4
)

// TopicConfig is the topic's whole configuration, the cluster's defaults included, by name.
func (c *Client) TopicConfig(ctx context.Context) (map[string]string, error) {
	registerAdmin()
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	return race(ctx, c, func(ctx context.Context, cn *conn) (map[string]string, error) {
		return cn.describe(ctx, configResource{Type: resourceTopic, Name: c.config.Topic})
	})
}

func (cn *conn) describe(ctx context.Context, r configResource) (map[string]string, error) {
	answer, err := cn.exchange(ctx, PhaseConfig, &describeConfigsRequest{Resources: []configResource{r}})
	if err != nil {
		return nil, err
	}
	d := answer.(*describeConfigsResponse)
	if len(d.Resources) != 1 {
		return nil, failed(PhaseConfig, cn.address, ErrNotKafka)
	}
	if code := d.Resources[0].ErrorCode; code != 0 {
		return nil, refused(PhaseConfig, cn.address, code, d.Resources[0].Message)
	}
	config := make(map[string]string, len(d.Resources[0].Entries))
	for _, e := range d.Resources[0].Entries {
		config[e.Name] = e.Value
	}
	return config, nil
}

// IsMissing tells whether err says that the topic, or the partition, does not exist.
func IsMissing(err error) bool {
	return errors.Is(err, ErrNoTopic) || errors.Is(err, UnknownTopic)
}
