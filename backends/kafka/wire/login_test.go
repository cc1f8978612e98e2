package wire_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestLogin(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}})
	for _, m := range []wire.Mechanism{"", wire.Plain, wire.ScramSHA256, wire.ScramSHA512} {
		c := client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "secret", Mechanism: m})
		if info, err := c.Topic(t.Context()); err != nil || info.Exists {
			t.Errorf("%q: %+v, %v", m, info, err)
		}
		c = client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "wrong-one", Mechanism: m})
		_, err := c.Topic(t.Context())
		refusedBy(t, err, "log in to "+k.Addr(), wire.SASLAuthenticationFailed, "wrong-one")
		if !permanent(err) {
			t.Errorf("%q: a wrong password is not permanent: %v", m, err)
		}
	}
	c := client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", Timeout: 2 * time.Second})
	if _, err := c.Topic(t.Context()); err == nil || !strings.Contains(err.Error(), k.Addr()) {
		t.Errorf("no login at all: %v", err)
	} else if remedy, _ := wire.Advice(err); !strings.Contains(remedy, "user and a password") {
		t.Errorf("no login at all: %v; %s", err, remedy)
	}
}

// Brokers may want a new login after a while, and hang up on the first request after that, which would be lost.
func TestLoginThatRunsOut(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"},
		Properties: map[string]string{"connections.max.reauth.ms": "1000"}})
	k.Cluster().CreateTopic("t", 1, logAppendTime)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "secret"})
	for range 3 {
		if _, err := c.Produce(t.Context(), 0, nil, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1200 * time.Millisecond) // the login's life
	}
}

func TestLoginByWhatIsOffered(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}, Mechanisms: []string{"PLAIN"}})
	c := client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "secret"})
	if _, err := c.Topic(t.Context()); err != nil {
		t.Errorf("PLAIN alone is offered: %v", err)
	}
	c = client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "secret", Mechanism: wire.ScramSHA512})
	_, err := c.Topic(t.Context())
	refusedBy(t, err, "it offers PLAIN", wire.UnsupportedSASLMechanism, "secret")
}

func refusedBy(t *testing.T, err error, text string, code wire.Code, secret string) {
	t.Helper()
	if !errors.Is(err, code) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v, want %q, %q, and no secret", err, text, code)
	}
}

func permanent(err error) bool {
	_, p := wire.Advice(err)
	return p
}

func TestTLS(t *testing.T) {
	certs := testserver.NewCerts(t)
	k := testserver.StartKafka(t, testserver.KafkaConfig{TLS: certs, Mutual: true, Users: map[string]string{"ann": "secret"}})
	good := wire.Config{Brokers: []string{k.Addr()}, Topic: "t", User: "ann", Password: "secret", TLS: certs.ClientConfig(), Timeout: 30 * time.Second}
	good.TLS.ServerName = "" // the address has to fit the certificate
	if _, err := client(t, good).Topic(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*tls.Config)
		want   string
	}{
		"another authority":     {func(c *tls.Config) { c.RootCAs = testserver.NewCerts(t).ClientConfig().RootCAs }, "TLS with " + k.Addr()},
		"another name":          {func(c *tls.Config) { c.ServerName = "elsewhere.test" }, "TLS with " + k.Addr()},
		"no client certificate": {func(c *tls.Config) { c.Certificates = nil }, k.Addr()},
	} {
		config := good
		config.TLS = good.TLS.Clone()
		c.change(config.TLS)
		if _, err := client(t, config).Topic(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || !permanent(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	config := good
	config.TLS, config.Timeout = nil, 3*time.Second
	if _, err := client(t, config).Topic(t.Context()); err == nil || !strings.Contains(err.Error(), "greet "+k.Addr()) {
		t.Errorf("no TLS against TLS: %v", err)
	} else if remedy, _ := wire.Advice(err); !strings.Contains(remedy, "tls=true") {
		t.Errorf("no TLS against TLS: %v; %s", err, remedy)
	}
}

func TestTLSAgainstPlain(t *testing.T) {
	k := broker(t)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}, Topic: "t", TLS: &tls.Config{InsecureSkipVerify: true}, Timeout: 3 * time.Second})
	started := time.Now()
	if _, err := c.Topic(t.Context()); err == nil || !strings.Contains(err.Error(), "TLS with "+k.Addr()) {
		t.Errorf("TLS against plain: %v", err)
	} else if remedy, _ := wire.Advice(err); !strings.Contains(remedy, "TLS on that port") {
		t.Errorf("TLS against plain: %v; %s", err, remedy)
	}
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Whatever else listens on a port gives an error in time, whose text says that it is not Kafka, or that nothing came.
func TestOtherServers(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		want error
	}{
		"HTTP": {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", wire.ErrNotKafka},
		"SSH":  {"SSH-2.0-x\r\n", wire.ErrNotKafka},
		// An answer to ApiVersions with append in the versions 0 to 2, and nothing else.
		"Kafka 0.10": {"\x00\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02", wire.ErrOld},
		"alert":      {"\x15\x03\x03\x00\x02\x02\x28", wire.ErrNotKafka},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					request := make([]byte, 1000)
					conn.Read(request)
					if asksVersions := request[5] == 18; asksVersions || name != "Kafka 0.10" { // which hangs up on what it does not know
						conn.Write([]byte(c.says))
					}
					conn.Close()
				}
			}()
			_, err = client(t, wire.Config{Brokers: []string{l.Addr().String()}, Topic: "t"}).Topic(t.Context())
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), l.Addr().String()) || !permanent(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A listener without SASL is not one that wants a login, and one with it hangs up on whoever asks for anything.
func TestLoginWhereNoneIsWantedAndTheReverse(t *testing.T) {
	c := client(t, wire.Config{Brokers: []string{broker(t).Addr()}, Topic: "t", User: "ann", Password: "secret"})
	_, err := c.Topic(t.Context())
	refusedBy(t, err, "takes no login", wire.IllegalSASLState, "secret")
	if remedy, _ := wire.Advice(err); !strings.Contains(remedy, "wants no login: leave user") || !permanent(err) {
		t.Errorf("a login that is not wanted: %v; %s", err, remedy)
	}
	k := testserver.StartKafka(t, testserver.KafkaConfig{Users: map[string]string{"ann": "secret"}})
	none := wire.Config{Brokers: []string{k.Addr()}, Topic: "t", Timeout: 5 * time.Second}
	for what, ask := range map[string]func(c *wire.Client) error{
		"configuration": func(c *wire.Client) error { _, err := c.TopicConfig(t.Context()); return err },
		"offsets":       func(c *wire.Client) error { _, err := c.End(t.Context(), 0); return err },
		"metadata":      func(c *wire.Client) error { _, err := c.Topic(t.Context()); return err },
	} {
		err := ask(client(t, none))
		if remedy, _ := wire.Advice(err); err == nil || !strings.Contains(remedy, "login") || !strings.Contains(remedy, "user and a password") {
			t.Errorf("%s: %v; %s", what, err, remedy)
		}
	}
}

// What no broker has failed at names none, and is a sentence all the same.
func TestErrorsWithoutABrokerAreSentences(t *testing.T) {
	c := client(t, wire.Config{Brokers: []string{broker(t).Addr()}, Topic: "missing"})
	for _, err := range []error{
		func() error { _, err := c.End(t.Context(), 0); return err }(),
		func() error { _, err := c.Fetch(t.Context(), 0, 0, 0, 1); return err }(),
	} {
		if err == nil || err.Error() != "there is no such topic" {
			t.Errorf("got %v", err)
		}
	}
	if err := (&wire.Error{Phase: wire.PhaseOffsets, Err: wire.ErrNoLeader}).Error(); err != "ask for offsets: the partition has no leader" {
		t.Errorf("got %q", err)
	}
}
