package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/firestore"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/redis"
	"github.com/lockrun/lockrun/backends/sqlite"
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
}

// openBackend opens the store that cfg names, the embedded one where it names none.
func openBackend(ctx context.Context, cfg *Config) (backends.Backend, error) {
	u, err := storeURL(cfg)
	if err != nil {
		return nil, err
	}
	open, ok := drivers[u.Scheme]
	if !ok {
		return nil, &backends.UsageError{
			What: "backend " + u.String(), Why: "this lockrun knows no scheme " + u.Scheme,
			Remedy: "it knows " + strings.Join(sortedKeys(drivers), ", "),
		}
	}
	return open(ctx, u, driverOptions(cfg))
}

// storeURL is the store that cfg names, or the embedded default.
func storeURL(cfg *Config) (*backends.URL, error) {
	if cfg.Backend != "" {
		return backends.ParseURL(cfg.Backend)
	}
	path, err := sqlite.DefaultPath(os.Getenv, os.Geteuid())
	return &backends.URL{Scheme: "sqlite", Path: path}, err
}

// driverOptions are what a driver is told beside the URL.
func driverOptions(cfg *Config) backends.Options {
	return backends.Options{
		Keep:     backends.Keep{Runs: cfg.HistoryKeep, Age: cfg.HistoryAge, DoneAge: cfg.DoneAge},
		ReadOnly: readOnlyVerb(cfg),
		Password: cfg.Password,
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
