package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MasterName is what the sentinels call the set of servers that they watch.
const MasterName = "lk"

// SentinelConfig is how servers under sentinels are started.
type SentinelConfig struct {
	Redis    RedisConfig // of each server
	Replicas int         // 0 means 2
	Password string      // that the sentinels ask for; "" for none
}

// Sentinels is a master with its replicas, watched by three sentinels that call it failed after a second of silence.
type Sentinels struct {
	Servers   []*Redis // the first one is the master at first
	Sentinels []*Redis
	t         TB
	config    SentinelConfig
}

// StartSentinels starts the servers, waits until they replicate, and then the sentinels: sentinels that come first may
// learn of the replicas 10 s later. It returns when each sentinel knows of all.
func StartSentinels(t TB, config SentinelConfig) *Sentinels {
	t.Helper()
	Need(t, "redis-server", "redis-sentinel")
	if config.Replicas == 0 {
		config.Replicas = 2
	}
	s := &Sentinels{t: t, config: config}
	master := StartRedis(t, replicated(config.Redis))
	s.Servers = append(s.Servers, master)
	for range config.Replicas {
		s.Servers = append(s.Servers, StartRedis(t, replicated(config.Redis, "--replicaof", fmt.Sprintf("127.0.0.1 %d", master.port))))
	}
	await(t, "replication", func() error { return online(master, config.Replicas) })
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.startSentinel(master))
	}
	await(t, "the sentinels knowing all", s.settled)
	return s
}

// replicated adds what makes replicas follow quickly.
func replicated(c RedisConfig, more ...string) RedisConfig {
	c.Args = append(append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, c.Args...), more...)
	return c
}

// online returns nil when a master has n replicas that are in step.
func online(master *Redis, n int) error {
	info, err := master.Info("replication")
	if err != nil {
		return err
	}
	count := 0
	for name, value := range info {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
			count++
		}
	}
	if count < n {
		return fmt.Errorf("%d of %d replicas are online", count, n)
	}
	return nil
}

func (s *Sentinels) startSentinel(master *Redis) *Redis {
	s.t.Helper()
	r := &Redis{config: RedisConfig{Password: s.config.Password, TLS: s.config.Redis.TLS, Mutual: s.config.Redis.Mutual},
		dir: newFolder(s.t, "sentinel")}
	r.Process = launch(s.t, func() (spec, error) {
		file := filepath.Join(r.dir, "data", "s.conf")
		spec, err := r.choose("redis-sentinel", func() []string { return []string{file} })
		if err != nil {
			return spec, err
		}
		spec.fill = func() error { return os.WriteFile(file, []byte(s.conf(r, master)), 0o644) }
		return spec, spec.fill()
	})
	s.hurry(r)
	return r
}

// conf is a sentinel's configuration file, which it writes into as well.
func (s *Sentinels) conf(r, master *Redis) string {
	lines := []string{"bind 127.0.0.1", "dir " + filepath.Join(r.dir, "data"), "protected-mode no"}
	if c := r.config.TLS; c != nil {
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", r.port), "tls-cert-file "+c.Server.CertFile,
			"tls-key-file "+c.Server.KeyFile, "tls-ca-cert-file "+c.CAFile, "tls-auth-clients "+yesNo(r.config.Mutual), "tls-replication yes")
	} else {
		lines = append(lines, fmt.Sprintf("port %d", r.port))
	}
	lines = append(lines, fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.port))
	for option, value := range map[string]string{"down-after-milliseconds": "1000", "failover-timeout": "3000", "parallel-syncs": "2"} {
		lines = append(lines, "sentinel "+option+" "+MasterName+" "+value)
	}
	if p := s.config.Redis.Password; p != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %q", MasterName, p))
	}
	if p := s.config.Password; p != "" {
		lines = append(lines, fmt.Sprintf("requirepass %q", p), fmt.Sprintf("sentinel sentinel-pass %q", p))
	}
	return strings.Join(lines, "\n") + "\n"
}

// hurry shortens the sentinel's periods, which Redis 7 can and others refuse. A ping period of 100 ms instead of 300 made
// every second failover fail at first, because a replica's INFO must not be older than five pings.
func (s *Sentinels) hurry(r *Redis) {
	r.Do("SENTINEL", "DEBUG", "info-period", "500", "publish-period", "200", "ping-period", "300", "ask-period", "100",
		"election-timeout", "1000", "min-link-reconnect-period", "500")
}

// settled returns nil when every sentinel sees the master, the replicas and the other sentinels.
func (s *Sentinels) settled() error {
	for _, r := range s.Sentinels {
		reply, err := r.Do("SENTINEL", "MASTER", MasterName)
		if err != nil {
			return err
		}
		m := pairs(reply)
		if m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return fmt.Errorf("%s sees %s other sentinels and a master that is %s", r.Addr(), m["num-other-sentinels"], m["flags"])
		}
		if reply, err = r.Do("SENTINEL", "REPLICAS", MasterName); err != nil {
			return err
		}
		good := 0
		replicas, _ := reply.([]any)
		for _, replica := range replicas {
			if m := pairs(replica); m["flags"] == "slave" && m["master-link-status"] == "ok" {
				good++
			}
		}
		if good < s.config.Replicas {
			return fmt.Errorf("%s sees %d good replicas", r.Addr(), good)
		}
	}
	return nil
}

// URL is how lockrun is told of the sentinels. It does not name their own password.
func (s *Sentinels) URL() string {
	return s.config.Redis.url("redis+sentinel", "/"+MasterName, s.Sentinels...)
}

// Master is the server that all running sentinels call the master and that calls itself so. It waits while they disagree.
func (s *Sentinels) Master() *Redis {
	s.t.Helper()
	return s.NewMaster(nil)
}

// NewMaster is Master, but waits until it is another than old.
func (s *Sentinels) NewMaster(old *Redis) *Redis {
	s.t.Helper()
	var master *Redis
	await(s.t, "the sentinels naming a master", func() (err error) {
		if master, err = s.named(); err == nil && master == old {
			err = errStillOld
		}
		return err
	})
	return master
}

// Replaced waits until the sentinels name another master than old. On a busy machine they may take longer than a test can
// wait, since a failover that did not succeed is not tried again at once: then it returns false.
func (s *Sentinels) Replaced(old *Redis) bool {
	return poll(func() error {
		if master, err := s.named(); err != nil || master == old {
			return errors.Join(err, errStillOld)
		}
		return nil
	}) == nil
}

func (s *Sentinels) named() (*Redis, error) {
	var master *Redis
	for _, r := range s.Sentinels {
		if !r.Running() {
			continue
		}
		reply, err := r.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if err != nil {
			return nil, err
		}
		a, _ := reply.([]any)
		if len(a) != 2 {
			return nil, fmt.Errorf("%s names %v", r.Addr(), reply)
		}
		named := byPort(s.Servers, fmt.Sprint(a[1]))
		if named == nil || master != nil && named != master {
			return nil, fmt.Errorf("the sentinels disagree: %v", a)
		}
		master = named
	}
	if master == nil {
		return nil, errors.New("no sentinel runs")
	}
	info, err := master.Info("replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("%s is a %s", master.Addr(), info["role"])
	}
	return master, err
}

// failoverAgain is after how long a failover that was begun is taken for given up: on a busy machine a replica may not follow
// in time (failover-timeout), and nobody tells who asked for it. Another is refused for twice that time.
const failoverAgain = 10 * time.Second

// Failover makes the sentinels put a replica in the master's place and returns the new master. The old one becomes a
// replica, which ends its connections. Refusals, as right after another failover, are waited out.
func (s *Sentinels) Failover() *Redis {
	s.t.Helper()
	old := s.Master()
	var master *Redis
	var asked time.Time
	await(s.t, "SENTINEL FAILOVER", func() (err error) {
		if master, err = s.named(); err == nil && master != old {
			return nil
		}
		if time.Since(asked) > failoverAgain {
			if _, err := s.Sentinels[0].Do("SENTINEL", "FAILOVER", MasterName); err != nil {
				return err
			}
			asked = time.Now()
		}
		return errors.Join(err, errStillOld)
	})
	return master
}

var errStillOld = errors.New("it is still the old one")
