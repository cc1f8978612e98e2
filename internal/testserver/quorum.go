package testserver

// Quorum is a number of Redis servers that do not know of each other.
type Quorum struct {
	Servers []*Redis
	config  RedisConfig
}

// StartQuorum starts n servers.
func StartQuorum(t TB, n int, config RedisConfig) *Quorum {
	t.Helper()
	q := &Quorum{config: config}
	for range n {
		q.Servers = append(q.Servers, StartRedis(t, config))
	}
	return q
}

// URL is how lockrun is told of the servers.
func (q *Quorum) URL() string { return q.config.url("redis+quorum", "", q.Servers...) }
