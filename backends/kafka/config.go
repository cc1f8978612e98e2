package kafka

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// config is what a URL and its options ask for.
type config struct {
	name       string // without secrets
	wire       wire.Config
	partitions int
	keep       backends.Keep
	readOnly   bool
	justNow    time.Duration // see justNow
}

// maxPartitions bounds what partitions=N can ask for: each is read on its own by whoever lists all keys.
const maxPartitions = 1000

// mechanisms are the values of sasl=.
var mechanisms = map[string]wire.Mechanism{
	"plain": wire.Plain, "scram-sha-256": wire.ScramSHA256, "scram-sha-512": wire.ScramSHA512,
}

// configure turns URL and options into a config. Whatever it refuses is a *backends.UsageError.
func configure(u *backends.URL, o backends.Options) (*config, error) {
	if err := u.Only("sasl", "partitions", "client_id", "tls", "ca", "cert", "key", "server_name"); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	c := &config{name: u.String(), partitions: 1, keep: o.Keep, readOnly: o.ReadOnly, justNow: justNow}
	c.wire = wire.Config{Brokers: u.Hosts, Topic: strings.TrimPrefix(u.Path, "/"), ClientID: "lockrun", User: u.User,
		Password: u.Password, Timeout: o.Timeout}
	if !u.HasPassword {
		c.wire.Password = o.Password
	}
	for _, step := range []func(*backends.URL) error{c.setTopic, c.setLogin, c.setNumbers, c.setTLS} {
		if err := step(u); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func wrong(why, remedy string) error {
	return &backends.UsageError{What: "kafka URL", Why: why, Remedy: remedy}
}

// setTopic checks brokers and topic. Kafka's own rules for names are checked here, since what it says of a bad one is that
// there is no such topic.
func (c *config) setTopic(u *backends.URL) error {
	t := c.wire.Topic
	switch {
	case len(u.Hosts) == 0:
		return wrong("there is no broker", "write kafka://b1:9092,b2:9092/topic")
	case t == "":
		return wrong("the path does not name the topic", "write kafka://b1:9092,b2:9092/topic")
	case len(t) > 249 || t == "." || t == ".." || strings.Trim(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
		return wrong(fmt.Sprintf("%.60q cannot be the name of a topic", t), "use at most 249 letters, digits, dots, dashes and underscores")
	case strings.HasPrefix(t, "__"):
		return wrong(fmt.Sprintf("%.60q is one of Kafka's own topics: their names begin with two underscores", t), "give lockrun a topic of its own")
	}
	return nil
}

func (c *config) setLogin(u *backends.URL) error {
	if len(u.Query["sasl"]) == 0 {
		return nil
	}
	m, ok := mechanisms[u.Param("sasl")]
	if !ok {
		return wrong("sasl is none of plain, scram-sha-256 and scram-sha-512", "write one of them, or leave it out for the strongest that the broker offers")
	}
	if u.User == "" {
		return wrong("sasl is given, but no user", "write kafka://user@host:9092/topic, with the password in a password_file")
	}
	c.wire.Mechanism = m
	return nil
}

func (c *config) setNumbers(u *backends.URL) error {
	if len(u.Query["client_id"]) > 0 {
		c.wire.ClientID = u.Param("client_id")
		if c.wire.ClientID == "" || strings.ContainsFunc(c.wire.ClientID, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return wrong("client_id is empty, or has a space or something that is not ASCII", "use letters, digits and dashes")
		}
	}
	if len(u.Query["partitions"]) == 0 {
		return nil
	}
	n, err := strconv.Atoi(u.Param("partitions"))
	if err != nil || n < 1 || n > maxPartitions {
		return wrong(fmt.Sprintf("partitions is not a number from 1 to %d", maxPartitions), "write the number that the topic was created with")
	}
	c.partitions = n
	return nil
}
