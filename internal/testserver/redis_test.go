package testserver

import (
	"errors"
	"testing"
)

func TestRedisLosesItsDataUnlessItPersists(t *testing.T) {
	for _, persist := range []bool{false, true} {
		r := StartRedis(t, RedisConfig{Persist: persist})
		r.Must("SET", "k", "v")
		was := r.PID()
		r.Kill()
		if _, err := r.Do("PING"); err == nil {
			t.Fatal("a killed server answers")
		}
		r.Restart()
		if r.PID() == was {
			t.Fatal("the same process is there after a restart")
		}
		if got := r.Must("GET", "k"); (got == "v") != persist {
			t.Errorf("persist %v: after a restart k is %v", persist, got)
		}
		r.RestartEmpty()
		if got := r.Must("GET", "k"); got != nil {
			t.Errorf("persist %v: after a restart without data k is %v", persist, got)
		}
	}
}

func TestRedisAsksForPasswordAndCertificate(t *testing.T) {
	certs := NewCerts(t)
	r := StartRedis(t, RedisConfig{Password: "s3 cret#", TLS: certs, Mutual: true})
	if got := r.Must("PING"); got != "PONG" {
		t.Fatalf("PING = %v", got)
	}
	for what, config := range map[string]RedisConfig{
		"without TLS":           {Password: "s3 cret#"},
		"without the password":  {TLS: certs},
		"with another's certs":  {Password: "s3 cret#", TLS: NewCerts(t)},
		"with a wrong password": {Password: "wrong", TLS: certs},
	} {
		other := &Redis{Process: r.Process, port: r.port, config: config}
		if v, err := other.Do("PING"); err == nil {
			t.Errorf("%s it answers %v", what, v)
		}
	}
}

func TestRedisRefusals(t *testing.T) {
	r := StartRedis(t, RedisConfig{Args: []string{"--maxmemory", "1kb", "--maxmemory-policy", "noeviction"}})
	// A kilobyte is less than an empty server uses.
	var refused RedisError
	if _, err := r.Do("SET", "k", "v"); !errors.As(err, &refused) {
		t.Errorf("a full server answers %v", err)
	}
	if v, err := r.Do("EVAL", "return {1, 'a', false, {2}}", "0"); err != nil || len(v.([]any)) != 4 {
		t.Errorf("EVAL = %v, %v", v, err)
	}
}
