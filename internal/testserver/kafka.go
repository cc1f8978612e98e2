package testserver

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// KafkaConfig is how brokers are started. Its zero value is a broker without login and TLS that creates no topics by itself.
type KafkaConfig struct {
	Version    string            // "3.9.1"; "" for the one that is tested with
	TLS        *Certs            // clients speak TLS
	Mutual     bool              // with TLS: ask clients for a certificate of the same authority
	Users      map[string]string // clients log in as one of these: name, password
	Mechanisms []string          // offered with Users; nil: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512
	ACL        bool              // with Users: who is not allowed something is denied it; see Kafka.Allow
	AutoCreate bool              // topics are created when somebody asks for them
	Proxied    bool              // clients reach each broker through its Proxy
	Properties map[string]string // more of server.properties

	// Clock is how far the clock of the first, second, ... broker is off, by libfaketime.
	Clock []time.Duration

	java []string // more options of the JVM
}

// Kafka is one broker. Beside what clients are told of, it listens on an address of its own for the harness and for the
// other brokers, without login, TLS and proxy.
type Kafka struct {
	*Process
	Proxy *Proxy // in front of it, with KafkaConfig.Proxied

	t       TB
	id      int
	dir     string
	client  int // the port for clients
	inner   int // the port for the harness and the other brokers
	control int // the port for the controllers
	install *kafkaInstall
	config  KafkaConfig
	cluster *KafkaCluster
	clock   time.Duration
}

// KafkaCluster is brokers that are controllers as well, so that more than half of them have to run.
type KafkaCluster struct {
	Nodes []*Kafka
	id    string
	t     TB
}

// StartKafka starts one broker, which is ready after a second or two. The first call on a machine fetches Kafka.
func StartKafka(t TB, config KafkaConfig) *Kafka {
	t.Helper()
	return StartKafkaCluster(t, 1, config).Nodes[0]
}

// StartKafkaCluster starts n brokers and returns when each of them knows all of them. Of three, one may be killed.
func StartKafkaCluster(t TB, n int, config KafkaConfig) *KafkaCluster {
	t.Helper()
	k := kafka(t, config.Version)
	if len(config.Clock) > 0 {
		Need(t, "libfaketime.so.1")
	}
	if err := k.makeArchive(); err != nil {
		t.Fatalf("preparing Kafka: %v", err)
	}
	for try := 1; ; try++ {
		nodes, err := k.newNodes(newFolder(t, "kafka"), n, config)
		if err != nil {
			t.Fatalf("preparing Kafka: %v", err)
		}
		c := nodes[0].cluster
		err = c.startAll(t)
		if err == nil {
			return c
		}
		if !errors.Is(err, errInUse) || try == 5 {
			t.Fatalf("%v", err)
		}
	}
}

// newNodes gives brokers ids, ports, and folders below root.
func (k *kafkaInstall) newNodes(root string, n int, config KafkaConfig) ([]*Kafka, error) {
	bootstrap, err := k.format(config.Users)
	if err != nil {
		return nil, err
	}
	c := &KafkaCluster{id: kafkaID()}
	for i := range n {
		b := &Kafka{id: i + 1, dir: filepath.Join(root, fmt.Sprint(i+1)), install: k, config: config, cluster: c}
		if i < len(config.Clock) {
			b.clock = config.Clock[i]
		}
		for _, port := range []*int{&b.client, &b.inner, &b.control} {
			if *port, err = freePort(); err != nil {
				return nil, err
			}
		}
		c.Nodes = append(c.Nodes, b)
	}
	for _, b := range c.Nodes {
		if err := b.fill(bootstrap); err != nil {
			return nil, err
		}
	}
	return c.Nodes, nil
}

// kafkaID is what Kafka calls an id: 16 random bytes.
func kafkaID() string {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f // a dash in front looks like an option to Kafka's tools
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// startAll starts the brokers at once, as none is ready before more than half of them run.
func (c *KafkaCluster) startAll(t TB) error {
	t.Helper()
	c.t = t
	for _, b := range c.Nodes {
		b.t = t
		if b.config.Proxied {
			b.Proxy = StartProxy(t, addr(b.client))
		}
		if err := b.writeConfig(); err != nil {
			return err
		}
		b.Process = &Process{t: t, spec: b.spec()}
	}
	err := c.each(func(b *Kafka) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := b.start(); err != nil {
			return err
		}
		return poll(func() error { return b.sees(len(c.Nodes)) })
	})
	for _, b := range c.Nodes {
		if err != nil {
			b.Kill()
			continue
		}
		t.Cleanup(b.cleanup)
	}
	return err
}

// each calls do for all brokers at once.
func (c *KafkaCluster) each(do func(*Kafka) error) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, b := range c.Nodes {
		wg.Go(func() { errs[i] = do(b) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// RestartAll kills all brokers and starts them again with what they have on disk.
func (c *KafkaCluster) RestartAll() {
	c.t.Helper()
	for _, b := range c.Nodes {
		b.Kill()
	}
	if err := c.each(func(b *Kafka) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.start()
	}); err != nil {
		c.t.Fatalf("restarting all brokers: %v", err)
	}
}

// spec is how the broker is started.
func (b *Kafka) spec() spec {
	argv := b.install.java(b.config.java, "kafka.Kafka", b.conf())
	var env []string
	if b.clock != 0 {
		// The monotonic clock is moved as well: a JVM in which the two differ takes its waits for over, and spins.
		env = []string{"LD_PRELOAD=" + find("libfaketime.so.1"), fmt.Sprintf("FAKETIME=%+.3f", b.clock.Seconds())}
	}
	return spec{
		name:  fmt.Sprintf("Kafka broker %d on port %d", b.id, b.client),
		argv:  argv,
		env:   env,
		log:   filepath.Join(b.dir, "log"),
		data:  filepath.Join(b.dir, "data"),
		ready: func(int) error { return b.sees(1) },
		quit:  20 * time.Second,
	}
}

// fill writes what formatting a broker's folder would have written, which would take a JVM.
func (b *Kafka) fill(bootstrap string) error {
	data := filepath.Join(b.dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, bootstrapFile), text, 0o644); err != nil {
		return err
	}
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", b.cluster.id, b.id, kafkaID())
	if err := os.WriteFile(filepath.Join(data, "meta.properties"), []byte(meta), 0o644); err != nil {
		return err
	}
	return b.writeConfig()
}

func (b *Kafka) conf() string { return filepath.Join(b.dir, "server.properties") }

func (b *Kafka) writeConfig() error {
	p := b.properties()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", name, p[name])
	}
	return os.WriteFile(b.conf(), []byte(text.String()), 0o644)
}

// properties is the broker's configuration. The times are for a quick failover.
func (b *Kafka) properties() map[string]string {
	voters := make([]string, len(b.cluster.Nodes))
	for i, n := range b.cluster.Nodes {
		voters[i] = fmt.Sprintf("%d@%s", n.id, addr(n.control))
	}
	n := len(b.cluster.Nodes)
	p := map[string]string{
		"process.roles":                         "broker,controller",
		"node.id":                               fmt.Sprint(b.id),
		"controller.quorum.voters":              strings.Join(voters, ","),
		"listeners":                             fmt.Sprintf("CLIENT://%s,INNER://%s,CONTROL://%s", addr(b.client), addr(b.inner), addr(b.control)),
		"advertised.listeners":                  fmt.Sprintf("CLIENT://%s,INNER://%s", b.Addr(), addr(b.inner)),
		"listener.security.protocol.map":        "CLIENT:" + b.config.protocol() + ",INNER:PLAINTEXT,CONTROL:PLAINTEXT",
		"controller.listener.names":             "CONTROL",
		"inter.broker.listener.name":            "INNER",
		"log.dirs":                              filepath.Join(b.dir, "data"),
		"auto.create.topics.enable":             fmt.Sprint(b.config.AutoCreate),
		"auto.leader.rebalance.enable":          "false", // the harness moves leaders
		"default.replication.factor":            fmt.Sprint(n),
		"min.insync.replicas":                   fmt.Sprint(n/2 + 1),
		"offsets.topic.replication.factor":      "1",
		"offsets.topic.num.partitions":          "1",
		"group.initial.rebalance.delay.ms":      "0",
		"broker.heartbeat.interval.ms":          "250",
		"broker.session.timeout.ms":             "1500",
		"controller.quorum.election.timeout.ms": "500",
		"controller.quorum.fetch.timeout.ms":    "1000",
		"replica.lag.time.max.ms":               "2000",
		"replica.fetch.backoff.ms":              "100",
		"log.retention.check.interval.ms":       "1000",
		"log.initial.task.delay.ms":             "500",
		// A broker that no controller has answered by then ends, which is no reason to end a test before its patience does.
		"initial.broker.registration.timeout.ms": fmt.Sprint(patience.Milliseconds()),
	}
	if n == 1 {
		// There is nobody to fail over to, and a busy machine must not fence it. A restarted one waits until its session is over.
		p["broker.session.timeout.ms"] = "20000"
	}
	b.config.secure(p)
	maps.Copy(p, b.config.Properties)
	return p
}

// protocol is what Kafka calls how clients connect.
func (c *KafkaConfig) protocol() string {
	switch {
	case c.Users != nil && c.TLS != nil:
		return "SASL_SSL"
	case c.Users != nil:
		return "SASL_PLAINTEXT"
	case c.TLS != nil:
		return "SSL"
	}
	return "PLAINTEXT"
}

// secure adds login, TLS and rights. Kafka wants certificate and key in one PEM file.
func (c *KafkaConfig) secure(p map[string]string) {
	if c.TLS != nil {
		p["listener.name.client.ssl.keystore.type"] = "PEM"
		p["listener.name.client.ssl.keystore.location"] = c.TLS.Server.bundle()
		p["listener.name.client.ssl.truststore.type"] = "PEM"
		p["listener.name.client.ssl.truststore.location"] = c.TLS.CAFile
		if c.Mutual {
			p["listener.name.client.ssl.client.auth"] = "required"
		}
	}
	if c.Users != nil {
		mechanisms := c.Mechanisms
		if mechanisms == nil {
			mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
		}
		p["sasl.enabled.mechanisms"] = strings.Join(mechanisms, ",")
		plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
		for _, name := range slices.Sorted(maps.Keys(c.Users)) {
			plain += fmt.Sprintf(" user_%s=%q", name, c.Users[name])
		}
		p["listener.name.client.plain.sasl.jaas.config"] = plain + ";"
		for _, m := range []string{"scram-sha-256", "scram-sha-512"} {
			p["listener.name.client."+m+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	if c.ACL {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS" // the harness and the brokers; clients have names
	}
}

// bundle writes key and certificate into one file beside them.
func (p CertPair) bundle() string {
	file := p.KeyFile + "+cert.pem"
	key, _ := os.ReadFile(p.KeyFile)
	cert, _ := os.ReadFile(p.CertFile)
	os.WriteFile(file, append(key, cert...), 0o644)
	return file
}

// ID is the broker's number in the cluster.
func (b *Kafka) ID() int { return b.id }

// Addr is the address that clients are told: the proxy's where there is one.
func (b *Kafka) Addr() string {
	if b.Proxy != nil {
		return b.Proxy.Addr()
	}
	return addr(b.client)
}

// Inner is the address without login, TLS and proxy.
func (b *Kafka) Inner() string { return addr(b.inner) }

// Cluster is what the broker belongs to, be it alone.
func (b *Kafka) Cluster() *KafkaCluster { return b.cluster }

// URL is how lockrun is told of a topic on this broker.
func (b *Kafka) URL(topic string) string { return b.config.url([]*Kafka{b}, topic) }

// URL is how lockrun is told of a topic on this cluster: all its brokers, and a user where there are some.
func (c *KafkaCluster) URL(topic string) string { return c.Nodes[0].config.url(c.Nodes, topic) }

// url names the first of the users, in the order of their names.
func (c *KafkaConfig) url(nodes []*Kafka, topic string) string {
	hosts := make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i] = n.Addr()
	}
	u := &url.URL{Scheme: "kafka", Host: strings.Join(hosts, ","), Path: "/" + topic}
	if c.Users != nil {
		name := slices.Sorted(maps.Keys(c.Users))[0]
		u.User = url.UserPassword(name, c.Users[name])
	}
	if c.TLS != nil {
		u.RawQuery = c.TLS.query(c.Mutual) + "&tls=true"
	}
	return u.String()
}

// Tool runs one of Kafka's own programs with this text as its input, and returns what it printed; it ends the test where it
// fails. "$BROKER" in an argument is the broker's inner address:
//
//	k.Tool("", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "$BROKER", "--list")
func (b *Kafka) Tool(input, class string, args ...string) string {
	b.t.Helper()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$BROKER", b.Inner())
	}
	argv := b.install.java(nil, class, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := output(cmd)
	if err != nil {
		b.t.Fatalf("%s: %v: %s", class, err, tail(out, 20))
	}
	return out
}

// kafkaPrograms are Kafka's scripts by their classes.
var kafkaPrograms = map[string]string{
	"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
	"kafka-configs.sh":          "kafka.admin.ConfigCommand",
	"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
}

// Bin is a folder with some of Kafka's scripts, as a distribution of Kafka has them, to be put into PATH.
func (b *Kafka) Bin() string {
	b.t.Helper()
	dir := filepath.Join(b.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatalf("Kafka's scripts: %v", err)
	}
	for name, class := range kafkaPrograms {
		words := b.install.java(nil, class)
		for i, w := range words {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		text := "#!/bin/sh\nexec " + strings.Join(words, " ") + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			b.t.Fatalf("Kafka's scripts: %v", err)
		}
	}
	return dir
}
