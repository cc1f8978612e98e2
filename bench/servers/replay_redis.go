package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// redisReplay lets redis-benchmark repeat requests, which is written in C and measures the server as well as can be.
type redisReplay struct {
	s      *stage
	server *testserver.Redis
}

// find takes the commands that run scripts.
func (r *redisReplay) find(recorded [][]byte) (scripts [][]byte) {
	for _, request := range recorded {
		if args := arguments(request); len(args) > 0 && strings.EqualFold(args[0], "evalsha") {
			scripts = append(scripts, request)
		}
	}
	return scripts
}

// arguments takes a command apart: *2\r\n$3\r\nGET\r\n$1\r\nk\r\n.
func arguments(command []byte) (args []string) {
	_, rest, _ := strings.Cut(string(command), "\r\n")
	for strings.HasPrefix(rest, "$") {
		length, after, _ := strings.Cut(rest[1:], "\r\n")
		n, err := strconv.Atoi(length)
		if err != nil || n+2 > len(after) {
			must(fmt.Errorf("%q is no command: %w", command, errNoMeasure))
		}
		args, rest = append(args, after[:n]), after[n+2:]
	}
	return args
}

// keepOn repeats the first request: to a server with one thread it is all the same whose lease is renewed.
func (r *redisReplay) keepOn(requests [][]byte, span time.Duration) float64 {
	probe := r.benchmark(len(requests), 2000, arguments(requests[0])...)
	return r.benchmark(len(requests), int(probe*span.Seconds()), arguments(requests[0])...)
}

func (r *redisReplay) atOnce(requests [][]byte, n int) time.Duration {
	rate := r.benchmark(n, n, arguments(one(requests))...)
	return time.Duration(float64(n) / rate * float64(time.Second))
}

func (r *redisReplay) busy() time.Duration {
	stats, err := r.server.Info("commandstats")
	must(err)
	// calls=3,usec=120,usec_per_call=40.00,...
	_, after, _ := strings.Cut(stats["cmdstat_evalsha"], "usec=")
	usec, _, _ := strings.Cut(after, ",")
	if usec == "" {
		return 0
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	must(err)
	return time.Duration(n) * time.Microsecond
}

// emptyScript is the rate of a script that does nothing.
func (r *redisReplay) emptyScript(n int, span time.Duration) float64 {
	sha := fmt.Sprint(r.server.Must("SCRIPT", "LOAD", "return 1"))
	probe := r.benchmark(n, 2000, "EVALSHA", sha, "1", "k")
	return r.benchmark(n, int(probe*span.Seconds()), "EVALSHA", sha, "1", "k")
}

// benchmark gives requests a second.
func (r *redisReplay) benchmark(clients, requests int, command ...string) float64 {
	testserver.Need(r.s, "redis-benchmark")
	args := append([]string{"-p", strconv.Itoa(r.server.Port()), "-c", strconv.Itoa(clients), "-n", strconv.Itoa(requests), "--csv"}, command...)
	out, err := exec.Command("redis-benchmark", args...).CombinedOutput()
	if err != nil {
		must(fmt.Errorf("redis-benchmark: %w: %s", err, out))
	}
	// The first of eight quoted fields holds the command's arguments, whatever they are.
	fields := strings.Split(strings.TrimSpace(string(out)), `","`)
	if len(fields) < 8 {
		must(fmt.Errorf("redis-benchmark printed %q: %w", out, errNoMeasure))
	}
	rate, err := strconv.ParseFloat(fields[len(fields)-7], 64)
	must(err)
	return rate
}

// names are the commands without their arguments.
func names(commands []string) (all []string) {
	for _, c := range commands {
		name, _, _ := strings.Cut(c, " ")
		all = append(all, strings.Trim(name, `"`))
	}
	return all
}
