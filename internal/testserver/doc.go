// Package testserver starts real servers for tests and measurements: Redis alone, under sentinels, as a cluster and as
// independent servers for a quorum, MariaDB alone and as a Galera cluster, MySQL 8.0 and 5.7, Kafka alone
// and as a cluster, in a version of one's choice. A [Proxy] in front of any of them loses replies, swallows requests, resets,
// delays and refuses.
//
//	r := testserver.StartRedis(t, testserver.RedisConfig{})
//	r.URL()                 // redis://127.0.0.1:17042
//	r.Freeze(); r.Thaw()    // connects, but nothing answers
//	r.Kill(); r.Restart()   // kill -9, and again at the same address
//
// Every server listens on a loopback port of its own, keeps its data in a folder that is taken away at the end of the
// test, and answers a real request before its start function returns. It dies with the test process, however that ends.
// When a test fails, the end of each server's log is shown.
//
// The start functions end a test that cannot have its server: they skip it under -short and where the program is
// missing (see [Need]), and fail it otherwise. All methods are safe for concurrent use unless they say otherwise.
//
// Nothing but tests and bench/ imports this package.
package testserver

import "time"

// TB is what the package needs of a test. *testing.T and *testing.B have it, and a program that measures can bring its
// own, which testing.TB does not allow.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
	Failed() bool
	Cleanup(func())
}

// patience bounds every wait for a server. It is generous because machines that run tests are busy, and it is reached
// only where something is broken.
const patience = 3 * time.Minute

// pollEvery is the pause between two looks at whether a server is there yet.
const pollEvery = 5 * time.Millisecond

// await calls check until it returns nil, and ends the test with its last error after patience.
func await(t TB, what string, check func() error) {
	t.Helper()
	if err := poll(check); err != nil {
		t.Fatalf("%s: still not after %v: %v", what, patience, err)
	}
}

// poll is await for those who can do something about a failure.
func poll(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollEvery)
	}
}
