package main

import (
	"fmt"
	"strings"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/firestore"
	"github.com/lockrun/lockrun/backends/kafka"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/redis"
	"github.com/lockrun/lockrun/backends/sqlite"
	"github.com/lockrun/lockrun/backends/zookeeper"
)

// drivers is the table of schemes. A driver is linked in by standing here, and in no other way.
var drivers = map[string]backends.OpenFunc{
	"sqlite":         sqlite.Open,
	"redis":          redis.Open,
	"rediss":         redis.Open,
	"redis+sentinel": redis.Open,
	"redis+cluster":  redis.Open,
	"redis+quorum":   redis.Open,
	"mysql":          mysql.Open,
	"firestore":      firestore.Open,
	"kafka":          kafka.Open,
	"zookeeper":      zookeeper.Open,
}

// sessionBound are the schemes whose leases live in a session with the servers, which ends with the process that took them.
var sessionBound = map[string]bool{"zookeeper": true}

// driverOptions are what every driver is told beside the URL and the password.
func driverOptions(cfg *Config) backends.Options {
	return backends.Options{
		Keep:     backends.Keep{Runs: cfg.HistoryKeep, Age: cfg.HistoryAge, DoneAge: cfg.DoneAge},
		ReadOnly: readOnlyVerb(cfg),
		Timeout:  cfg.BackendTimeout,
	}
}

// readOnlyVerb tells the verbs that only ask, and so need no right to write.
func readOnlyVerb(cfg *Config) bool {
	switch cfg.Verb {
	case "status", "history", "doctor", "metrics":
		return true
	case "init":
		return cfg.Print
	}
	return false
}

// hasPassword tells whether a backend URL carries a password.
func hasPassword(raw string) bool {
	u, err := backends.ParseURL(raw)
	return err == nil && u.HasPassword && u.Password != ""
}

// withoutPassword is a backend URL as a child may see it. What cannot be read for certain is not shown at all.
func withoutPassword(raw string) (string, error) {
	u, err := backends.ParseURL(raw)
	if err != nil {
		return "", err
	}
	if !u.HasPassword {
		return raw, nil
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	info, hosts, found := strings.Cut(rest, "@")
	if !found {
		return "", fmt.Errorf("no user")
	}
	user, _, _ := strings.Cut(info, ":")
	return scheme + "://" + user + "@" + hosts, nil
}
