package kafka

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// doctor returns what the doctor finds, by check; findings of the same name are joined.
func doctor(t *testing.T, b *backend) map[string]backends.Check {
	t.Helper()
	all := map[string]backends.Check{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range b.Doctor(ctx) {
		if c.Backend != b.Name() || c.Check == "" || c.Cause == "" || strings.Contains(c.Cause+c.Remedy, "\n") || !c.OK && c.Remedy == "" {
			t.Errorf("%+v", c)
		}
		if old, ok := all[c.Check]; ok {
			c.OK, c.Cause, c.Remedy = c.OK && old.OK, old.Cause+" | "+c.Cause, old.Remedy+" | "+c.Remedy
		}
		all[c.Check] = c
	}
	return all
}

// expect compares one finding.
func expect(t *testing.T, all map[string]backends.Check, check string, ok bool, cause, remedy string) {
	t.Helper()
	c, found := all[check]
	if !found || c.OK != ok || !strings.Contains(c.Cause, cause) || !strings.Contains(c.Remedy, remedy) || remedy == "" && strings.Trim(c.Remedy, " |") != "" {
		t.Errorf("%s: %+v; want ok %v, %q, %q", check, c, ok, cause, remedy)
	}
}

func TestDoctorOfAGoodTopic(t *testing.T) {
	s := newStore(t, 3)
	s.cluster.InSync(s.topic, 0, 3)
	before := len(s.records())
	all := doctor(t, s.behind)
	for check, c := range all {
		if !c.OK || c.Remedy != "" {
			t.Errorf("%s: %+v", check, c)
		}
	}
	for _, check := range []string{"connection", "round trip", "partitions", "rights", "message.timestamp.type", "cleanup.policy",
		"retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "in sync", "clock", "records"} {
		if _, ok := all[check]; !ok {
			t.Errorf("nothing is said about %s", check)
		}
	}
	if added := len(s.records()) - before; added != 1 {
		t.Errorf("the doctor left %d records", added)
	}
	if cause := doctor(t, newStore(t, 1).behind)["connection"].Cause; !strings.HasSuffix(cause, " with 1 broker") {
		t.Errorf("of one broker it says %q", cause)
	}
	expect(t, doctor(t, s.behind), "records", true, "2 are all lockrun's", "") // the doctor's and Init's
}

// records are all records of the topic's first partition.
func (s *store) records() []wire.Record {
	s.Helper()
	all, err := s.behind.recent(context.Background(), 0)
	if err != nil {
		s.Fatal(err)
	}
	return all
}

func TestDoctorOfAMissingTopic(t *testing.T) {
	s := bare(t, cluster(t, 1))
	expect(t, doctor(t, s.behind), "topic", false, "no such topic", "lockrun init")
	if s.cluster.HasTopic(s.topic) {
		t.Error("the doctor created the topic")
	}
}

func TestDoctorOfABadTopic(t *testing.T) {
	s := bare(t, cluster(t, 3))
	s.cluster.CreateTopic(s.topic, 3, map[string]string{"message.timestamp.type": "CreateTime", "cleanup.policy": "compact,delete",
		"retention.ms": "864000000", "retention.bytes": "1000000", "unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
	all := doctor(t, s.behind)
	expect(t, all, "message.timestamp.type", false, "CreateTime", "kafka-configs.sh --bootstrap-server "+s.cluster.Nodes[0].Addr())
	expect(t, all, "clock", true, "nothing is written", "")
	if n := len(s.records()); n != 0 {
		t.Errorf("the doctor left %d records", n)
	}
	expect(t, all, "cleanup.policy", false, "compact,delete", "cleanup.policy=delete")
	expect(t, all, "retention.ms", true, "10 d", "retention.ms=34646400000")
	expect(t, all, "retention.bytes", false, "1000000", "retention.bytes=-1")
	expect(t, all, "unclean.leader.election.enable", false, "true", "unclean.leader.election.enable=false")
	expect(t, all, "min.insync.replicas", true, "1 of 3", "min.insync.replicas=2")
	expect(t, all, "partitions", true, "1 of its 3", "every host")
	b := s.openQuery(backends.Options{Timeout: 30 * time.Second}, "?partitions=9")
	defer b.Close()
	expect(t, doctor(t, b), "partitions", false, "3 partitions, and partitions=9", "--partitions 9")
}

func TestDoctorFindsForeignRecords(t *testing.T) {
	s := newStore(t, 1)
	for _, r := range [][2]string{{"k", "not ours"}, {"", ""}, {"k", `{"lockrun":1,"type":"LOCK"}`}} {
		if _, err := s.behind.client.Produce(t.Context(), 0, []byte(r[0]), []byte(r[1])); err != nil {
			t.Fatal(err)
		}
	}
	// Foreign producers may compress what they write.
	k := s.cluster.Nodes[0]
	k.Tool("one\ntwo\n", "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", "$BROKER", "--topic", s.topic, "--compression-codec", "zstd")
	expect(t, doctor(t, s.behind), "records", true, "4 are not lockrun's and 1 damaged", "of its own")
	if _, err := s.behind.client.Produce(t.Context(), 0, []byte("k"), []byte(`{"lockrun":99}`)); err != nil {
		t.Fatal(err)
	}
	expect(t, doctor(t, s.behind), "records", false, "newer", "update")
}

func TestDoctorOfBrokersThatAreDown(t *testing.T) {
	s := newStore(t, 3)
	k := s.cluster
	s.mend()
	k.InSync(s.topic, 0, 3)
	dead := k.Leader(s.topic, 0)
	dead.Kill()
	k.Leader(s.topic, 0)
	k.InSync(s.topic, 0, 2)
	all := doctor(t, s.behind)
	for strings.Contains(all["append"].Cause, "is not the partition's leader") { // until all have heard of the election
		all = doctor(t, s.behind)
	}
	expect(t, all, "broker "+dead.Addr(), true, "connect to "+dead.Addr(), "running there")
	expect(t, all, "in sync", true, "only", "start the brokers")
	k.SetTopic(s.topic, "min.insync.replicas", "3")
	all = doctor(t, s.behind)
	for all["min.insync.replicas"].Cause[:1] != "3" { // brokers learn of a changed setting a moment later
		all = doctor(t, s.behind)
	}
	expect(t, all, "min.insync.replicas", true, "while one broker is down", "min.insync.replicas=2")
	expect(t, all, "in sync", false, "2 replicas in sync, and 3 are needed", "start the brokers")
}

// A broker that takes connections and never answers is the only one that is told of, whatever time it uses up.
func TestDoctorOfABrokerThatHangs(t *testing.T) {
	s := newStore(t, 1)
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connections
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	u, err := backends.ParseURL(strings.Replace(s.cluster.URL(s.topic), "kafka://", "kafka://"+hung.Addr().String()+",", 1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), u, backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var told []string
	for _, c := range b.(*backend).Doctor(ctx) {
		told = append(told, c.Check)
		if hangs := c.Check == "broker "+hung.Addr().String(); !c.OK || hangs != strings.Contains(c.Cause, "no answer in time") {
			t.Errorf("%+v", c)
		}
	}
	if want := []string{"connection", "broker " + hung.Addr().String(), "round trip", "rights"}; len(told) < 10 || !slices.Equal(told[:4], want) {
		t.Errorf("told of %q; want %q and more", told, want)
	}
}

func TestDoctorTellsRights(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}, ACL: true})
	s := bare(t, k.Cluster())
	err := s.behind.Init(t.Context())
	if err == nil || !backends.IsPermanent(err) || !strings.Contains(err.Error(), "not authorized") || !strings.Contains(err.Error(), "give the user Create") {
		t.Errorf("init without a right: %v", err)
	}
	s.cluster.CreateTopic(s.topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	expect(t, doctor(t, s.behind), "topic", false, "not authorized", "Describe")
	allowed := []int{}
	for _, step := range []struct {
		allow         int
		check         string
		ok            bool
		cause, remedy string
	}{
		{testserver.AllowRead, "rights", true, "look and not take", "Write"},
		{testserver.AllowWrite, "rights", true, "Read, Write, Describe", "with DescribeConfigs"},
		{testserver.AllowDescribeConfigs, "rights", true, "DescribeConfigs", ""},
	} {
		k.Cluster().Allow("ann", s.topic, step.allow)
		allowed = append(allowed, step.allow)
		all := doctor(t, s.behind)
		for deadline := time.Now().Add(time.Minute); !strings.Contains(all["rights"].Cause, step.cause) && time.Now().Before(deadline); {
			all = doctor(t, s.behind) // brokers learn of a right a moment later
		}
		expect(t, all, step.check, step.ok, step.cause, step.remedy)
		if _, reads := all["retention.ms"]; reads != slices.Contains(allowed, testserver.AllowDescribeConfigs) {
			t.Errorf("with the rights %v: %+v", allowed, all)
		}
		if !strings.Contains(all["clock"].Cause, "no right to write") == !slices.Contains(allowed, testserver.AllowWrite) {
			t.Errorf("with the rights %v: %+v", allowed, all["clock"])
		}
	}
}

func TestDoctorComparesClocks(t *testing.T) {
	k := testserver.StartKafkaCluster(t, 2, testserver.KafkaConfig{Clock: []time.Duration{0, 5 * time.Minute}})
	s := bare(t, k)
	b := s.openQuery(backends.Options{Timeout: 30 * time.Second}, "?partitions=2")
	defer b.Close()
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Each broker has to lead a partition, or its clock cannot be read.
	k.InSync(s.topic, 0, 2)
	k.InSync(s.topic, 1, 2)
	k.MoveLeader(s.topic, 0, k.Nodes[0])
	k.MoveLeader(s.topic, 1, k.Nodes[1])
	all := doctor(t, b)
	expect(t, all, "clocks", true, "apart", "NTP")
	late := regexp.MustCompile(regexp.QuoteMeta(k.Nodes[1].Addr()) + " is (4m5|5m0)")
	if c := all["clock"]; !c.OK || !late.MatchString(c.Cause) || !strings.Contains(c.Remedy, "NTP") {
		t.Errorf("%+v", c)
	}
}
