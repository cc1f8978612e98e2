package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// view is what the client last heard of the cluster.
type view struct {
	turn chan struct{} // holds one while somebody asks

	mu      sync.Mutex
	cluster *Cluster
	stale   bool // something did not fit, so that it has to be asked for again
}

// Cluster is the cluster and the topic in it, as one broker sees them.
type Cluster struct {
	ID         string
	Controller int32 // -1: none now
	Brokers    []Broker
	Topic      TopicInfo

	// Operations are those that the user may do on the cluster; meaningful only where they were asked for.
	Operations Operations

	from string // the broker that said so
}

// Broker is one broker that is up, at the address that it tells clients.
type Broker struct {
	ID   int32
	Host string
	Port int
	Rack string // "" where it has none
}

// Addr is the broker's address to dial.
func (b Broker) Addr() string { return net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) }

// TopicInfo is the topic. Nothing but Exists counts where it does not exist.
type TopicInfo struct {
	Exists     bool
	Denied     bool        // the user may not look at it, so that whether it exists is not known
	Partitions []Partition // by number
	Operations Operations  // that the user may do on it; meaningful only where they were asked for
}

// Partition is one partition of the topic.
type Partition struct {
	ID       int32
	Leader   int32 // -1: none now
	Epoch    int32 // of the leader
	Replicas []int32
	ISR      []int32 // replicas in sync
	Offline  []int32 // replicas whose broker is down
}

// Operations is the set of what a user may do, in Kafka's bits.
type Operations int32

// What lockrun does, by bit.
const (
	Read            Operations = 1 << 3
	Write           Operations = 1 << 4
	Create          Operations = 1 << 5
	Describe        Operations = 1 << 8
	DescribeConfigs Operations = 1 << 10
)

// Has tells whether all of want are among o.
func (o Operations) Has(want Operations) bool { return o&want == want }

// Leader gives the broker that leads a partition.
func (c *Cluster) Leader(partition int) (Broker, error) {
	switch {
	case !c.Topic.Exists:
		return Broker{}, ErrNoTopic
	case partition < 0 || partition >= len(c.Topic.Partitions):
		return Broker{}, ErrPartition
	}
	id := c.Topic.Partitions[partition].Leader
	i := slices.IndexFunc(c.Brokers, func(b Broker) bool { return b.ID == id })
	if i < 0 {
		return Broker{}, ErrNoLeader
	}
	return c.Brokers[i], nil
}

// Cluster asks for the cluster and the topic anew, with what the user may do where operations is set. A topic that is
// missing is no error, and is not created.
func (c *Client) Cluster(ctx context.Context, operations bool) (Cluster, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	found, err := c.ask(ctx, operations)
	if err != nil {
		return Cluster{}, err
	}
	return *found, nil
}

// Topic asks for the topic anew.
func (c *Client) Topic(ctx context.Context) (TopicInfo, error) {
	found, err := c.Cluster(ctx, false)
	return found.Topic, err
}

// KnownTopic is the topic as it was last heard of.
func (c *Client) KnownTopic(ctx context.Context) (TopicInfo, error) {
	ctx, cancel := c.bound(ctx, 0)
	defer cancel()
	found, err := c.current(ctx)
	if err != nil {
		return TopicInfo{}, err
	}
	return found.Topic, nil
}

// current is the view, asked for where there is none or where it was found wrong.
func (c *Client) current(ctx context.Context) (*Cluster, error) {
	if found := c.view.get(); found != nil {
		return found, nil
	}
	select {
	case c.view.turn <- struct{}{}:
		defer func() { <-c.view.turn }()
	case <-ctx.Done():
		return nil, failed(PhaseMetadata, "", ctx.Err())
	}
	if found := c.view.get(); found != nil { // somebody asked while we waited for our turn
		return found, nil
	}
	return c.ask(ctx, false)
}

func (v *view) get() *Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale {
		return nil
	}
	return v.cluster
}

func (v *view) last() *Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cluster
}

// doubted is the broker whose answer did not fit, or "".
func (v *view) doubted() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cluster == nil || !v.stale {
		return ""
	}
	return v.cluster.from
}

func (v *view) set(found *Cluster) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cluster, v.stale = found, false
}

// doubt makes the next call ask again, unless seen has been replaced meanwhile.
func (c *Client) doubt(seen *Cluster) {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	if c.view.cluster == seen {
		c.view.stale = true
	}
}

// ask asks whichever broker answers first.
func (c *Client) ask(ctx context.Context, operations bool) (*Cluster, error) {
	found, err := race(ctx, c, func(ctx context.Context, cn *conn) (*Cluster, error) {
		return cn.metadata(ctx, operations)
	})
	if err != nil {
		return nil, err
	}
	c.view.set(found)
	return found, nil
}

// candidates are the brokers to ask: first those that we are connected to, then those that we were told to begin with,
// then those that were learnt. The one whose answer turned out not to fit comes last: a broker that is cut off from the
// others goes on telling what it knew.
func (c *Client) candidates() []string {
	doubted := c.view.doubted()
	var all []string
	all = append(all, c.config.Brokers...)
	if known := c.view.last(); known != nil {
		for _, b := range known.Brokers {
			all = append(all, b.Addr())
		}
	}
	order := func(address string) int {
		switch {
		case address == doubted:
			return 2
		case c.hasIdle(address):
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return order(a) - order(b) })
	var once []string
	for _, a := range all {
		if !slices.Contains(once, a) {
			once = append(once, a)
		}
	}
	return once
}

// headStart is how long one broker is waited for before the next is asked as well. It is above a round trip round the
// world, and far below the time-outs that a broker behind a black hole would use up.
const headStart = 300 * time.Millisecond

type answer[T any] struct {
	value T
	err   error
}

// race asks one broker after the other, the next when one has failed or after a head start, and returns the first
// answer. The others are given up.
func race[T any](ctx context.Context, c *Client, do func(context.Context, *conn) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addresses := c.candidates()
	answers := make(chan answer[T], len(addresses))
	running := 0
	launch := func() {
		address := addresses[0]
		addresses = addresses[1:]
		running++
		if !c.spawn(func() {
			value, err := oneOff(ctx, c, address, do)
			answers <- answer[T]{value, err}
		}) {
			answers <- answer[T]{err: failed(PhaseDial, address, ErrClosed)}
		}
	}
	launch()
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	var errs []error
	for running > 0 {
		select {
		case a := <-answers:
			running--
			if a.err == nil {
				return a.value, nil
			}
			errs = append(errs, a.err)
		case <-timer.C:
		}
		if len(addresses) > 0 && ctx.Err() == nil {
			launch()
			timer.Reset(headStart)
		}
	}
	var none T
	return none, several(errs)
}

// oneOff asks one broker on one connection.
func oneOff[T any](ctx context.Context, c *Client, address string, do func(context.Context, *conn) (T, error)) (T, error) {
	cn, err := c.connection(ctx, address)
	if err != nil {
		var none T
		return none, err
	}
	defer c.giveBack(cn)
	return do(ctx, cn)
}

// metadata asks for the cluster and the topic.
func (cn *conn) metadata(ctx context.Context, operations bool) (*Cluster, error) {
	answers, err := cn.exchangeAll(ctx, cn.asking(operations))
	if err != nil {
		return nil, err
	}
	return cn.told(answers[0])
}

// asking is the request for the cluster and the topic, which never lets the broker create the latter.
func (cn *conn) asking(operations bool) step {
	return step{phase: PhaseMetadata, request: &metadataRequest{
		Topics: []string{cn.client.config.Topic}, TopicOperations: operations, ClusterOperations: operations}}
}

// told reads the answer to it.
func (cn *conn) told(answer protocol.Message) (found *Cluster, err error) {
	m := answer.(*metadataResponse)
	found = &Cluster{ID: m.ClusterID, Controller: m.Controller, Operations: Operations(m.ClusterOperations), from: cn.address}
	for _, b := range m.Brokers {
		found.Brokers = append(found.Brokers, Broker{ID: b.ID, Host: b.Host, Port: int(b.Port), Rack: b.Rack})
	}
	if len(m.Topics) != 1 || len(m.Brokers) == 0 {
		return nil, failed(PhaseMetadata, cn.address, errors.New("it knows no brokers yet"))
	}
	found.Topic, err = topicInfo(m.Topics[0])
	if err != nil {
		return nil, failed(PhaseMetadata, cn.address, err)
	}
	return found, nil
}

func topicInfo(t metadataTopic) (TopicInfo, error) {
	switch t.ErrorCode {
	case 0, LeaderNotAvailable:
	case UnknownTopic:
		return TopicInfo{}, nil
	case TopicAuthorizationFailed:
		return TopicInfo{Denied: true}, nil
	default:
		return TopicInfo{}, t.ErrorCode
	}
	info := TopicInfo{Exists: true, Operations: Operations(t.Operations)}
	for _, p := range t.Partitions {
		info.Partitions = append(info.Partitions, Partition{ID: p.ID, Leader: p.Leader, Epoch: p.Epoch,
			Replicas: p.Replicas, ISR: p.ISR, Offline: p.Offline})
	}
	slices.SortFunc(info.Partitions, func(a, b Partition) int { return int(a.ID) - int(b.ID) })
	return info, nil
}
