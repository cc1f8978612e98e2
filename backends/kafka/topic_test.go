package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// bare is a topic's name on a cluster, without the topic.
func bare(t *testing.T, c *testserver.KafkaCluster) *store {
	t.Helper()
	s := &store{TB: t, cluster: c, topic: fmt.Sprintf("locks-%d-%d", time.Now().UnixNano(), topics.Add(1))}
	s.behind = s.open(backends.Options{Timeout: 30 * time.Second})
	return s
}

func TestInitCreatesTheTopic(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " brokers"), func(t *testing.T) {
			s := bare(t, cluster(t, n))
			b := s.openQuery(backends.Options{Timeout: 30 * time.Second}, "?partitions=4")
			defer b.Close()
			for range 2 { // the second time changes nothing
				if err := b.Init(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			topic, err := b.client.Topic(t.Context())
			if err != nil || len(topic.Partitions) != 4 || len(topic.Partitions[0].Replicas) != n {
				t.Errorf("%+v, %v", topic, err)
			}
			got, err := b.client.TopicConfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete",
				"retention.ms": strconv.Itoa(401 * 24 * 60 * 60 * 1000), "retention.bytes": "-1",
				"max.message.bytes":   "1048588",
				"min.insync.replicas": fmt.Sprint(n/2 + 1), "unclean.leader.election.enable": "false"} {
				if got[name] != want {
					t.Errorf("%s is %s, want %s", name, got[name], want)
				}
			}
		})
	}
}

func TestInitFromManyAtOnce(t *testing.T) {
	s := bare(t, cluster(t, 1))
	var wg sync.WaitGroup
	for range 30 {
		b := s.openQuery(backends.Options{Timeout: time.Minute}, "")
		wg.Go(func() {
			defer b.Close()
			if err := b.Init(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// script runs shell commands with Kafka's own programs in the path.
func (s *store) script(text string) (printed string) {
	s.Helper()
	cmd := exec.Command("sh", "-ec", text)
	cmd.Env = append(os.Environ(), "PATH="+s.cluster.Nodes[0].Bin()+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", text, err, out)
	}
	return string(out)
}

// What init says is wrong is wrong, it is left as it is, and the command that it gives puts it right.
func TestInitRefusesAWrongTopic(t *testing.T) {
	for _, c := range []struct{ name, value, cause string }{
		{"message.timestamp.type", "CreateTime", "clocks of clients"},
		{"cleanup.policy", "compact", "out of the middle"},
		{"cleanup.policy", "compact,delete", "out of the middle"},
		{"retention.ms", "3600000", "retention.ms is 1h0m0s"},
		{"retention.bytes", "1000000", "retention.bytes"},
		{"max.message.bytes", "10000", "max.message.bytes is 10000"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			s := bare(t, cluster(t, 1))
			good := map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
			good[c.name] = c.value
			s.cluster.CreateTopic(s.topic, 1, good)
			err := s.behind.Init(t.Context())
			var e *backends.Error
			if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), c.cause) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v", err)
			}
			settings, err := s.behind.client.TopicConfig(t.Context(), c.name)
			if err != nil || settings[c.name] != c.value {
				t.Errorf("%v, %v", settings, err)
			}
			command, found := strings.CutPrefix(e.Remedy, "run ")
			if !found {
				t.Fatalf("the remedy is %q", e.Remedy)
			}
			s.script(command)
			for err := s.behind.Init(t.Context()); err != nil; err = s.behind.Init(t.Context()) {
				if t.Context().Err() != nil { // brokers learn of a changed setting a moment later
					t.Fatal(err)
				}
			}
		})
	}
}

func TestInitRefusesTooFewPartitions(t *testing.T) {
	s := bare(t, cluster(t, 1))
	s.cluster.CreateTopic(s.topic, 2, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	b := s.openQuery(backends.Options{Timeout: 30 * time.Second}, "?partitions=3")
	defer b.Close()
	if err := b.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "2 partitions, and partitions=3") || !backends.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
	if err := s.behind.Init(t.Context()); err != nil {
		t.Errorf("more partitions than are used: %v", err)
	}
	if err := b.Init(t.Context()); !differs(err, 1) {
		t.Errorf("after somebody else's: %v", err)
	}
}

// The command that --print shows makes the topic that init makes, and init is content with it.
func TestInitPlan(t *testing.T) {
	s := bare(t, cluster(t, 3))
	s.script(s.behind.InitPlan())
	made := s.settings()
	if err := s.behind.Init(t.Context()); err != nil {
		t.Error(err)
	}
	own := newStore(t, 3)
	for name, want := range own.settings() {
		if made[name] != want {
			t.Errorf("the command sets %s to %s, and init to %s", name, made[name], want)
		}
	}
}

func (s *store) settings() map[string]string {
	s.Helper()
	got, err := s.behind.client.TopicConfig(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	return got
}

func TestInitPlanTouchesNothing(t *testing.T) {
	u, err := backends.ParseURL("kafka://ann:secret@b1,b2:9093/locks?tls=true&partitions=7")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), u, backends.Options{Keep: backends.Keep{DoneAge: 1000 * 24 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plan := b.(backends.Initer).InitPlan()
	for _, want := range []string{"--bootstrap-server b1:9092,b2:9093 --command-config client.properties", "--partitions 7", "--topic locks",
		"retention.ms=86486400000"} {
		if !strings.Contains(plan, want) {
			t.Errorf("%q is missing in %s", want, plan)
		}
	}
	if strings.Contains(plan, "secret") {
		t.Errorf("the plan tells the password: %s", plan)
	}
}
