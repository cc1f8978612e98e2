package wire

import (
	"context"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
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

// AwaitTopic waits until the topic can be used, with at least so many partitions, for when somebody else is creating it.
func (c *Client) AwaitTopic(ctx context.Context, partitions int) error {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	return c.awaitTopic(ctx, partitions)
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

// awaitTopic waits until each broker that answers knows the topic with a leader for each partition. They learn of it one
// after the other, and who asks next may ask the last of them.
func (c *Client) awaitTopic(ctx context.Context, partitions int) error {
	for {
		found, err := c.ask(ctx, false)
		if err == nil {
			if err = found.ready(partitions); err == nil && c.knownToAll(ctx, found.Brokers, partitions) {
				return c.led(ctx, partitions)
			}
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return failed(PhaseCreate, "", err)
		}
	}
}

// led waits until each partition's leader knows that it is one: until then it refuses what it is asked.
func (c *Client) led(ctx context.Context, partitions int) error {
	for partition := range partitions {
		if _, err := c.End(ctx, partition); err != nil {
			return err
		}
	}
	return nil
}

// laggard bounds the wait for one broker's word on whether it knows the topic.
const laggard = 500 * time.Millisecond

// knownToAll tells whether no broker says that the topic is not ready. One that does not answer says nothing.
func (c *Client) knownToAll(ctx context.Context, brokers []Broker, partitions int) bool {
	ctx, cancel := context.WithTimeout(ctx, laggard)
	defer cancel()
	for _, b := range brokers {
		found, err := oneOff(ctx, c, b.Addr(), func(ctx context.Context, cn *conn) (*Cluster, error) { return cn.metadata(ctx, false) })
		if err == nil && found.ready(partitions) != nil {
			return false
		}
	}
	return true
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

// resourceTopic is Kafka's number for a topic among what has a configuration.
const resourceTopic = 2

// TopicConfig is the topic's configuration, the cluster's defaults included, by name: the settings that are named, or all.
func (c *Client) TopicConfig(ctx context.Context, names ...string) (map[string]string, error) {
	registerConfigs()
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	return race(ctx, c, func(ctx context.Context, cn *conn) (map[string]string, error) {
		return cn.describe(ctx, configResource{Type: resourceTopic, Name: c.config.Topic, Names: names})
	})
}

func (cn *conn) describe(ctx context.Context, r configResource) (map[string]string, error) {
	answer, err := cn.exchange(ctx, PhaseConfig, &describeConfigsRequest{Resources: []configResource{r}})
	if err != nil {
		return nil, err
	}
	return cn.described(answer)
}

// described reads the answer about one resource's configuration.
func (cn *conn) described(answer protocol.Message) (map[string]string, error) {
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

// Reach asks one broker, which need not be the one that would be asked otherwise, and tells how long its answer took,
// connecting not included.
func (c *Client) Reach(ctx context.Context, address string) (time.Duration, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	return oneOff(ctx, c, address, func(ctx context.Context, cn *conn) (time.Duration, error) {
		sent := time.Now()
		_, err := cn.metadata(ctx, false)
		return time.Since(sent), err
	})
}

// Bootstrap are the addresses that the client was given, with their ports.
func (c *Client) Bootstrap() []string { return slices.Clone(c.config.Brokers) }
