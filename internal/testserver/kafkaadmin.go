package testserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// CreateTopic creates a topic with any configuration, also one that lockrun would refuse, and returns when every broker
// that runs knows it with a leader for each partition.
func (c *KafkaCluster) CreateTopic(topic string, partitions int, config map[string]string) {
	c.t.Helper()
	q := &message{}
	q.i32(1)
	q.str(topic)
	q.i32(partitions)
	q.i16(int16(len(c.Nodes)))
	q.i32(0) // no assignments
	q.i32(len(config))
	for _, name := range slices.Sorted(maps.Keys(config)) {
		q.str(name)
		q.str(config[name])
	}
	q.i32(int(patience.Milliseconds()))
	q.i8(0)
	err := c.any().code(askCreateTopics, 4, q.b, func(m *message) (int16, string) {
		m.int32()
		m.int32()
		m.string()
		return m.int16(), m.string()
	})
	if err != nil {
		c.t.Fatalf("creating the topic %s: %v", topic, err)
	}
	c.await(topic, partitions)
}

func (c *KafkaCluster) await(topic string, partitions int) {
	c.t.Helper()
	for _, b := range c.Nodes {
		if !b.Running() {
			continue
		}
		await(c.t, "the topic "+topic, func() error {
			v, err := b.view(topic)
			if err != nil {
				return err
			}
			led := 0
			for _, p := range v.partitions {
				if p.leader > 0 {
					led++
				}
			}
			if led < partitions {
				return fmt.Errorf("%d of %d partitions have a leader", led, partitions)
			}
			return nil
		})
	}
}

// any is a broker that runs and is not frozen.
func (c *KafkaCluster) any() *Kafka {
	c.t.Helper()
	for _, b := range c.Nodes {
		if b.Running() && stopped(b.PID()) != nil {
			return b
		}
	}
	c.t.Fatalf("no broker runs")
	return nil
}

// HasTopic tells whether a topic exists.
func (c *KafkaCluster) HasTopic(topic string) bool {
	c.t.Helper()
	v, err := c.any().view(topic)
	if err != nil {
		c.t.Fatalf("asking for the topic %s: %v", topic, err)
	}
	return v.partitions != nil
}

// Provoke asks for a topic as careless clients do, so that KafkaConfig.AutoCreate creates it, which takes a broker a moment,
// and returns when it is there. A topic that somebody asked for before is there then, too, if that created it.
func (b *Kafka) Provoke(topic string) {
	b.t.Helper()
	await(b.t, "a broker creates the topic "+topic, func() error {
		v, err := b.metadata(topic, 1)
		if err == nil && v.partitions == nil {
			err = errors.New("it is not there yet")
		}
		return err
	})
}

// SetTopic changes a topic's configuration.
func (c *KafkaCluster) SetTopic(topic, name, value string) {
	c.t.Helper()
	q := &message{}
	q.i32(1)
	q.i8(2) // a topic
	q.str(topic)
	q.i32(1)
	q.str(name)
	q.i8(0) // set
	q.str(value)
	q.i8(0)
	err := c.any().code(askAlterConfigs, 0, q.b, func(m *message) (int16, string) {
		m.int32()
		m.int32()
		return m.int16(), m.string()
	})
	if err != nil {
		c.t.Fatalf("setting %s of the topic %s: %v", name, topic, err)
	}
}

// AddPartitions makes the topic one of n partitions.
func (c *KafkaCluster) AddPartitions(topic string, n int) {
	c.t.Helper()
	q := &message{}
	q.i32(1)
	q.str(topic)
	q.i32(n)
	q.i32(-1) // no assignments
	q.i32(int(patience.Milliseconds()))
	q.i8(0)
	err := c.any().code(askCreatePartition, 0, q.b, func(m *message) (int16, string) {
		m.int32()
		m.int32()
		m.string()
		return m.int16(), m.string()
	})
	if err != nil {
		c.t.Fatalf("adding partitions to the topic %s: %v", topic, err)
	}
	c.await(topic, n)
}

// Cut removes the records of a partition below an offset, as retention would.
func (c *KafkaCluster) Cut(topic string, partition int, offset int64) {
	c.t.Helper()
	q := &message{}
	q.i32(1)
	q.str(topic)
	q.i32(1)
	q.i32(partition)
	q.i64(offset)
	q.i32(int(patience.Milliseconds()))
	err := c.Leader(topic, partition).code(askDeleteRecords, 0, q.b, func(m *message) (int16, string) {
		m.int32()
		m.int32()
		m.string()
		m.int32()
		m.int32()
		m.take(8)
		return m.int16(), ""
	})
	if err != nil {
		c.t.Fatalf("cutting the topic %s: %v", topic, err)
	}
}

// Leader is the broker that leads a partition, once there is one that runs.
func (c *KafkaCluster) Leader(topic string, partition int) *Kafka {
	c.t.Helper()
	var leader *Kafka
	await(c.t, "the leader of "+topic, func() error {
		v, err := c.any().view(topic)
		if err != nil {
			return err
		}
		id := v.partitions[partition].leader
		i := slices.IndexFunc(c.Nodes, func(b *Kafka) bool { return b.id == id })
		if i < 0 || !c.Nodes[i].Running() {
			return fmt.Errorf("the leader is %d", id)
		}
		leader = c.Nodes[i]
		return nil
	})
	return leader
}

// InSync waits until n replicas of a partition are in sync.
func (c *KafkaCluster) InSync(topic string, partition, n int) {
	c.t.Helper()
	await(c.t, "replicas in sync", func() error {
		v, err := c.any().view(topic)
		if err != nil {
			return err
		}
		if isr := v.partitions[partition].isr; len(isr) != n {
			return fmt.Errorf("in sync are %v", isr)
		}
		return nil
	})
}

// MoveLeader makes another broker, which has to be in sync, the leader of a partition, and returns when the others know.
func (c *KafkaCluster) MoveLeader(topic string, partition int, to *Kafka) {
	c.t.Helper()
	v, err := c.any().view(topic)
	if err != nil {
		c.t.Fatalf("moving the leader: %v", err)
	}
	order := []int{to.id}
	for _, id := range v.partitions[partition].replicas {
		if id != to.id {
			order = append(order, id)
		}
	}
	if err := c.prefer(topic, partition, order); err != nil {
		c.t.Fatalf("moving the leader to broker %d: %v", to.id, err)
	}
	await(c.t, fmt.Sprintf("broker %d as the leader", to.id), func() error { return c.elected(topic, partition, to.id) })
}

// elected asks for the preferred leader until it is the leader.
func (c *KafkaCluster) elected(topic string, partition, id int) error {
	q := &message{}
	q.i32(1)
	q.str(topic)
	q.i32(1)
	q.i32(partition)
	q.i32(int(patience.Milliseconds()))
	if _, err := c.any().ask(askElectLeaders, 0, q.b, patience); err != nil {
		return err
	}
	v, err := c.any().view(topic)
	if err != nil {
		return err
	}
	if leader := v.partitions[partition].leader; leader != id {
		return fmt.Errorf("the leader is %d", leader)
	}
	return nil
}

// prefer changes the order of a partition's replicas, the first of which is preferred. This message is there only in the
// compact form: lengths are one higher and take a byte here, and each structure ends with the number of its tags.
func (c *KafkaCluster) prefer(topic string, partition int, replicas []int) error {
	q := &message{}
	q.i32(int(patience.Milliseconds()))
	q.i8(2)
	q.i8(int8(len(topic) + 1))
	q.b = append(q.b, topic...)
	q.i8(2)
	q.i32(partition)
	q.i8(int8(len(replicas) + 1))
	for _, id := range replicas {
		q.i32(id)
	}
	q.b = append(q.b, 0, 0, 0)
	return c.any().code(askReassign, 0, q.b, func(m *message) (int16, string) {
		m.int32()
		return m.int16(), ""
	})
}

// What a user may be allowed, as Kafka counts.
const (
	AllowAll             = 2
	AllowRead            = 3
	AllowWrite           = 4
	AllowCreate          = 5
	AllowDescribe        = 8
	AllowDescribeConfigs = 10
)

// Allow lets a user do something with a topic, where KafkaConfig.ACL is set, which the brokers learn a moment later.
func (c *KafkaCluster) Allow(user, topic string, operations ...int) {
	c.t.Helper()
	q := &message{}
	q.i32(len(operations))
	for _, operation := range operations {
		q.i8(2) // a topic
		q.str(topic)
		q.i8(3) // by its whole name
		q.str("User:" + user)
		q.str("*") // from every host
		q.i8(int8(operation))
		q.i8(3) // allow
	}
	err := c.any().code(askCreateACLs, 1, q.b, func(m *message) (int16, string) {
		m.int32()
		for range m.int32() {
			if code, text := m.int16(), m.string(); code != 0 {
				return code, text
			}
		}
		return 0, ""
	})
	if err != nil {
		c.t.Fatalf("allowing %s something: %v", user, err)
	}
}
