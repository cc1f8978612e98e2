package testserver

import (
	"strings"
	"testing"
)

func TestKafkaAlone(t *testing.T) {
	k := StartKafka(t, KafkaConfig{})
	c := k.Cluster()
	if c.HasTopic("locks") {
		t.Fatal("the topic is there before it was created")
	}
	c.CreateTopic("locks", 2, map[string]string{"message.timestamp.type": "LogAppendTime"})
	if !c.HasTopic("locks") {
		t.Fatal("the topic is not there")
	}
	c.SetTopic("locks", "retention.ms", "12345")
	c.AddPartitions("locks", 3)
	out := k.Tool("", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "$BROKER", "--describe", "--topic", "locks")
	for _, want := range []string{"PartitionCount: 3", "retention.ms=12345", "message.timestamp.type=LogAppendTime"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
	k.Restart()
	if !c.HasTopic("locks") {
		t.Error("the topic did not survive a restart")
	}
}

func TestKafkaCluster(t *testing.T) {
	c := StartKafkaCluster(t, 3, KafkaConfig{Proxied: true})
	c.CreateTopic("locks", 1, nil)
	first := c.Leader("locks", 0)
	next := c.Nodes[first.ID()%3]
	c.InSync("locks", 0, 3)
	c.MoveLeader("locks", 0, next)
	if now := c.Leader("locks", 0); now != next {
		t.Errorf("broker %d leads instead of %d", now.ID(), next.ID())
	}
	next.Kill()
	if now := c.Leader("locks", 0); now == next {
		t.Error("a dead broker leads")
	}
	next.Restart()
	c.InSync("locks", 0, 3)
	c.RestartAll()
	c.InSync("locks", 0, 3)
}
