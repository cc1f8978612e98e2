package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

var _ backends.Doctor = (*backend)(nil)

const docs = "see docs/backends/kafka.md"

// The settings of the topic that matter here, under Kafka's names.
const (
	setTimestamps     = "message.timestamp.type"
	setCleanup        = "cleanup.policy"
	setRetention      = "retention.ms"
	setRetentionBytes = "retention.bytes"
	setRecordBytes    = "max.message.bytes"
	setInSync         = "min.insync.replicas"
	setUnclean        = "unclean.leader.election.enable"
)

// leastRetention is how long the log has to be kept at the least: ten times the longest lease that anybody is likely to
// ask for, and a weekend in which nothing runs. Below it a lease, a pause or a minimum hold can be cut off while it counts.
const leastRetention = 7 * 24 * time.Hour

// leastRecordBytes is what a record has to be allowed to take. With keys, run ids and holders as long as they may be it takes
// some 20 KB, and several more with many slots; and a lease whose beat is too large cannot be renewed. Init asks for
// Kafka's default.
const (
	leastRecordBytes  = 64 << 10
	wantedRecordBytes = "1048588"
)

// manyReplicas is how many replicas the topic has where there are as many brokers: one of them may then be lost without
// losing a record, or the right to append one.
const manyReplicas = 3

// wantedRetention is how long Init keeps the log: as long as anything that is promised from it, and a day.
func (c *config) wantedRetention() time.Duration {
	return max(leastRetention, c.keep.Age, c.keep.DoneAge) + 24*time.Hour
}

// settings are those that Init gives the topic, in order, with so many replicas.
func (c *config) settings(replicas int) []setting {
	inSync := "1"
	if replicas >= manyReplicas {
		inSync = "2"
	}
	return []setting{
		{setTimestamps, "LogAppendTime"},
		{setCleanup, "delete"},
		{setRetention, strconv.FormatInt(c.wantedRetention().Milliseconds(), 10)},
		{setRetentionBytes, "-1"},
		{setRecordBytes, wantedRecordBytes},
		{setInSync, inSync},
		{setUnclean, "false"},
	}
}

type setting struct{ name, value string }

// create creates the topic, unless it is there.
func (b *backend) create(ctx context.Context) error {
	found, err := b.client.Cluster(ctx, false)
	if err != nil || found.Topic.Exists {
		return err
	}
	replicas := min(manyReplicas, len(found.Brokers))
	spec := wire.TopicSpec{Partitions: b.c.partitions, Replication: replicas, Config: map[string]string{}}
	for _, s := range b.c.settings(replicas) {
		spec.Config[s.name] = s.value
	}
	err = b.client.CreateTopic(ctx, spec)
	if errors.Is(err, wire.TopicExists) { // somebody else was quicker: the caller looks at what they made
		return b.client.AwaitTopic(ctx, 1)
	}
	return err
}

// wrongness is something about the topic that is not as it should be.
type wrongness struct {
	check, cause, remedy string
	fatal                bool // leases cannot rely on the topic; else it is advice
}

// settingsWrong finds what a topic's settings have against it.
func (c *config) settingsWrong(s map[string]string) []wrongness {
	var all []wrongness
	if v := s[setTimestamps]; v != "LogAppendTime" {
		all = append(all, wrongness{setTimestamps, setTimestamps + " is " + v + ", so that the clocks of clients would decide",
			c.alter(setTimestamps, "LogAppendTime"), true})
	}
	if v := s[setCleanup]; v != "delete" {
		all = append(all, wrongness{setCleanup, setCleanup + " is " + v + ", which takes records out of the middle of the log",
			c.alter(setCleanup, "delete"), true})
	}
	if v := s[setRetentionBytes]; v != "-1" {
		all = append(all, wrongness{setRetentionBytes, setRetentionBytes + " is " + v + ", so that busy keys cut off what others rely on",
			c.alter(setRetentionBytes, "-1"), true})
	}
	if v, err := strconv.ParseInt(s[setRecordBytes], 10, 64); err == nil && v < leastRecordBytes {
		all = append(all, wrongness{setRecordBytes, fmt.Sprintf("%s is %d, less than %d, so that a lease with long names, or many slots, cannot be renewed", setRecordBytes, v, leastRecordBytes),
			c.alter(setRecordBytes, wantedRecordBytes), true})
	}
	return append(all, c.retentionWrong(s[setRetention])...)
}

func (c *config) retentionWrong(value string) []wrongness {
	ms, err := strconv.ParseInt(value, 10, 64)
	wanted := c.wantedRetention().Milliseconds()
	switch keep := time.Duration(ms) * time.Millisecond; {
	case err != nil:
		return []wrongness{{setRetention, setRetention + " is " + value, c.alter(setRetention, strconv.FormatInt(wanted, 10)), true}}
	case ms < 0: // for ever
	case ms < leastRetention.Milliseconds():
		return []wrongness{{setRetention, fmt.Sprintf("%s is %s, less than %s, so that the log may forget what still counts", setRetention, days(keep), days(leastRetention)),
			c.alter(setRetention, strconv.FormatInt(wanted, 10)), true}}
	case ms < wanted:
		return []wrongness{{setRetention, fmt.Sprintf("%s is %s: history, done-marks, pauses and attempts of a key that has not been used for so long are forgotten", setRetention, days(keep)),
			c.alter(setRetention, strconv.FormatInt(wanted, 10)), false}}
	}
	return nil
}

// partitionsWrong compares the topic's partitions with the configured number, by which keys find theirs.
func (c *config) partitionsWrong(t wire.TopicInfo) []wrongness {
	n := len(t.Partitions)
	switch {
	case n < c.partitions:
		return []wrongness{{"partitions", fmt.Sprintf("it has %s, and partitions=%d is configured", count(n, "partition"), c.partitions),
			"set partitions to what every other host has, or run " + c.command("kafka-topics.sh", "--alter", "--topic", c.wire.Topic, "--partitions", strconv.Itoa(c.partitions)), true}}
	case n > c.partitions:
		return []wrongness{{"partitions", fmt.Sprintf("%d of its %d partitions are used", c.partitions, n),
			"fine where every host has the same partitions=", false}}
	}
	return nil
}

// count is so many of something.
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// days is a duration for people.
func days(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
	return d.String()
}

// alter is the command that changes a setting of the topic.
func (c *config) alter(name, value string) string {
	return "run " + c.command("kafka-configs.sh", "--alter", "--entity-type", "topics", "--entity-name", c.wire.Topic, "--add-config", name+"="+value)
}

// command is one of Kafka's programs, told of our brokers. Where these want a login or TLS, a file has to tell how.
func (c *config) command(program string, args ...string) string {
	words := []string{program, "--bootstrap-server", strings.Join(c.bootstrap(), ",")}
	if c.wire.User != "" || c.wire.TLS != nil {
		words = append(words, "--command-config", "client.properties")
	}
	return strings.Join(append(words, args...), " ")
}

// bootstrap are the brokers with their ports, which Kafka's programs do not add.
func (c *config) bootstrap() []string { return wire.WithPorts(c.wire.Brokers) }

// InitPlan is what Init does, as a command of Kafka's own.
func (b *backend) InitPlan() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s \\\n  --create --if-not-exists --topic %s \\\n  --partitions %d --replication-factor %d",
		b.c.command("kafka-topics.sh"), b.c.wire.Topic, b.c.partitions, manyReplicas)
	for _, c := range b.c.settings(manyReplicas) {
		fmt.Fprintf(&s, " \\\n  --config %s=%s", c.name, c.value)
	}
	s.WriteString("\n# where there are fewer than three brokers: as many replicas as brokers, and " + setInSync + "=1\n")
	return s.String()
}
