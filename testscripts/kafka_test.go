package testscripts

import (
	"net/url"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

// toTheEnd cuts a log at its end, in the language of testserver's Cut: what readers can see of it is gone.
const toTheEnd = -1

func TestServersKafka(t *testing.T) {
	t.Parallel()
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"lockrun": password}})
	f := kafkaFleet(t, k.Cluster(), k.URL("locks"), "locks")
	f.freeze, f.thaw, f.kill = k.Freeze, k.Thaw, k.Kill
	// CON-03
	f.sub("no topic", func(h *host) {
		// A broker that has just been started takes its time for the first logins.
		h.lockrun(69, "--key", "early", "--backend-timeout", "30s", "--", "echo", "started").says("lockrun: ", "lockrun init")
		h.lockrun(69, "status", "early", "--backend-timeout", "30s")
		h.lockrun(69, "history", "--backend-timeout", "30s")
		if k.Cluster().HasTopic("locks") {
			h.t.Error("asking has created the topic")
		}
	})
	f.sub("the plan", func(h *host) {
		if out := h.lockrun(0, "init", "--print").stdout(); !strings.Contains(out, "kafka-topics") || !strings.Contains(out, "LogAppendTime") {
			h.t.Errorf("the plan is\n%s", out)
		}
		if k.Cluster().HasTopic("locks") {
			h.t.Error("printing the plan has created the topic")
		}
	})
	f.lockrun(0, "init", "--backend-timeout", "30s")
	f.lockrun(0, "init")
	f.peace()
	f.sub("first runs on a fresh topic", func(h *host) {
		h.firstRuns(1, rounds.Of(12, 30), true, func(round string) string { return strings.Replace(h.backend, "/locks", "/"+round, 1) })
	})
	f.sub("another number of partitions", func(h *host) {
		other := h.at(h.backend + "?partitions=2")
		other.lockrun(69, "--key", "k", "--", "echo", "started").says("lockrun: ", "other hosts use partitions=1", "leave partitions= out")
		other.lockrun(69, "status", "k").says("lockrun: ", "other hosts use partitions=1")
		other.lockrun(69, "init").says("lockrun: ", "other hosts use partitions=1")
	})
	f.sub("a topic of Kafka's own", func(h *host) {
		h.at(strings.Replace(h.backend, "/locks", "/__consumer_offsets", 1)).lockrun(64, "init").says("lockrun: ", "Kafka's own")
	})
	f.sub("restart", func(h *host) {
		h.hold("restart", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(k.Restart)
	})
	f.war()
}

func TestServersKafkaCluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartKafkaCluster(t, 3, testserver.KafkaConfig{Users: map[string]string{"lockrun": password}})
	f := kafkaFleet(t, c, c.URL("locks"), "locks")
	each := func(do func(*testserver.Kafka)) func() {
		return func() {
			for _, b := range c.Nodes {
				if b.Running() {
					do(b)
				}
			}
		}
	}
	f.freeze, f.kill = each((*testserver.Kafka).Freeze), each((*testserver.Kafka).Kill)
	f.thaw = func() { each((*testserver.Kafka).Thaw)(); c.Leader("locks", 0); c.InSync("locks", 0, 3) }
	f.lockrun(0, "init", "--backend-timeout", "30s")
	f.peace()
	f.sub("leader moved", func(h *host) {
		h.hold("moved", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(func() { c.MoveLeader("locks", 0, follower(c)) })
	})
	f.sub("leader killed", func(h *host) {
		old := c.Leader("locks", 0)
		h.hold("bereft", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(old.Kill)
		old.Restart()
		c.InSync("locks", 0, 3)
	})
	f.sub("all restarted", func(h *host) {
		h.hold("restarted", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(c.RestartAll)
		c.InSync("locks", 0, 3)
	})
	f.sub("too few replicas", func(h *host) {
		run := h.hold("few", 0, "--ttl", outlast, "--heartbeat", "100ms")
		c.SetTopic("locks", "min.insync.replicas", "3")
		down := follower(c)
		down.Kill()
		c.InSync("locks", 0, 2)
		h.refused("few-start", "min.insync.replicas")
		run.survives(func() { down.Restart(); c.InSync("locks", 0, 3) })
		c.SetTopic("locks", "min.insync.replicas", "2")
	})
	f.war()
}

// follower is a broker that does not lead.
func follower(c *testserver.KafkaCluster) *testserver.Kafka {
	leader := c.Leader("locks", 0)
	for _, b := range c.Nodes {
		if b != leader {
			return b
		}
	}
	return nil
}

func kafkaFleet(t *testing.T, c *testserver.KafkaCluster, backend, topic string) *fleet {
	return &fleet{
		host:   newHost(t, backend, password),
		wrong:  strings.Replace(backend, url.UserPassword("", password).String(), url.UserPassword("", wrongPassword).String(), 1),
		forget: func(string) { c.Cut(topic, 0, toTheEnd) }, revives: true,
	}
}

func TestReadmeKafka(t *testing.T) {
	t.Parallel()
	k := testserver.StartKafka(t, testserver.KafkaConfig{})
	r := newReadmeServer(t, "kafka://kafka1:9092,kafka2:9092,kafka3:9092/lockrun", k.URL("lockrun"))
	r.env = append(r.env, "LOCKRUN_BACKEND_TIMEOUT=30s") // for a broker that has just been started
	r.ran(r.run("shell kafka"))
}
