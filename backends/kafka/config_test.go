package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

func open(t *testing.T, raw string, o backends.Options) (*config, error) {
	t.Helper()
	u, err := backends.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	b, err := Open(context.Background(), u, o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { b.Close() })
	return b.(*backend).c, nil
}

// CFG-02: what the URL says arrives as it is meant.
func TestURL(t *testing.T) {
	c, err := open(t, "kafka://us%20er:p%40%2F%3A%23%25%3F%26%3D%20%C3%BC@b1:9093,b2,[::1]:9094/my.topic_1?sasl=scram-sha-256&partitions=6&client_id=cron&tls=true&server_name=k", backends.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w := c.wire
	if !slices.Equal(w.Brokers, []string{"b1:9093", "b2", "[::1]:9094"}) || w.Topic != "my.topic_1" || w.User != "us er" || w.Password != "p@/:#%?&= ü" ||
		w.Mechanism != wire.ScramSHA256 || w.ClientID != "cron" || w.TLS == nil || w.TLS.ServerName != "k" || w.Timeout != time.Second || c.partitions != 6 {
		t.Errorf("configured %+v", c)
	}
	if c.name != "kafka://us%20er@b1:9093,b2,[::1]:9094/my.topic_1" {
		t.Errorf("it is called %s", c.name)
	}
	if c, err = open(t, "kafka://me@b/t", backends.Options{Password: "from the file"}); err != nil || c.wire.Password != "from the file" || c.partitions != 1 || c.wire.TLS != nil {
		t.Errorf("configured %+v, %v", c, err)
	}
}

func TestWrongURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"kafka:///t":                             "no broker",
		"kafka://b":                              "does not name the topic",
		"kafka://b/":                             "does not name the topic",
		"kafka://b/a/b":                          "cannot be the name",
		"kafka://b/..":                           "cannot be the name",
		"kafka://b/__consumer_offsets":           "Kafka's own",
		"kafka://b/" + strings.Repeat("x", 250):  "cannot be the name",
		"kafka://b/t?sasl=plain":                 "no user",
		"kafka://u@b/t?sasl=kerberos":            "sasl is none of",
		"kafka://b/t?partitions=0":               "partitions is not a number",
		"kafka://b/t?partitions=":                "partitions is not a number",
		"kafka://b/t?partitions=1001":            "partitions is not a number",
		"kafka://b/t?client_id=a%20b":            "client_id",
		"kafka://b/t?tls=yes":                    "tls is neither",
		"kafka://b/t?ca=/x":                      "no TLS is asked for",
		"kafka://b/t?tls=true&ca=/nonexistent":   "ca cannot be read",
		"kafka://b/t?tls=true&key=/nonexistent":  "without cert",
		"kafka://b/t?acks=1":                     "unknown parameter",
		"kafka://u:hunter2horse@b/t?tls=perhaps": "tls is neither",
	} {
		_, err := open(t, raw, backends.Options{})
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2horse") {
			t.Errorf("%s: %v, want a usage error with %q", raw, err, want)
		}
	}
}

func TestDrift(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{time.Minute: 6 * time.Second, 300 * time.Millisecond: 50 * time.Millisecond,
		60 * time.Millisecond: 30 * time.Millisecond, time.Millisecond: 500 * time.Microsecond} {
		if got := drift(ttl); got != want {
			t.Errorf("drift of %v is %v, want %v", ttl, got, want)
		}
	}
	if got := ms(1500 * time.Microsecond); got != 2 {
		t.Errorf("1.5 ms are kept as %d", got)
	}
}

// An address that does not stand in the URL is one that a broker has told, which is where people have to look.
func TestAddressesOfNobodysWriting(t *testing.T) {
	u, err := backends.ParseURL("kafka://b1,b2:9093/locks")
	if err != nil {
		t.Fatal(err)
	}
	c, err := configure(u, backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(c)
	defer b.Close()
	for address, told := range map[string]bool{"b1:9092": false, "b2:9093": false, "b2:9092": true, "10.0.0.7:9092": true} {
		err := b.fail("acquire", &wire.Error{Phase: wire.PhaseDial, Broker: address, Err: syscall.ECONNREFUSED})
		if strings.Contains(err.Error(), "advertised.listeners") != told {
			t.Errorf("%s: %v", address, err)
		}
	}
}
