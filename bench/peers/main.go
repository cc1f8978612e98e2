// Command peers puts lockrun beside what people use today to keep a job from running twice: flock(1), etcdctl lock, SET NX
// by redis-cli in a shell, and the JVM's Redisson, ShedLock and Curator, each with its real server, all in one run on one
// machine. The JVM libraries are fetched by Maven and driven by jvm/Peer.java.
//
//	go run ./bench/peers -lockrun ./lockrun
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is one comparison.
type bench struct {
	lockrun    string
	runs       int // starts of each peer
	slowRuns   int // of those that start a JVM
	contenders int
	span       time.Duration // how long operations are counted
	handovers  int
	ttl        time.Duration // of each lock, where a server is frozen
	patience   time.Duration // how long a job is watched then
}

func main() {
	b := &bench{}
	flag.StringVar(&b.lockrun, "lockrun", "./lockrun", "the program to measure")
	flag.IntVar(&b.runs, "n", 100, "starts of each peer")
	flag.IntVar(&b.slowRuns, "n-jvm", 15, "starts of each peer that is a JVM")
	flag.IntVar(&b.contenders, "contenders", 100, "contenders at once")
	flag.DurationVar(&b.span, "for", 5*time.Second, "how long operations are counted")
	flag.IntVar(&b.handovers, "handovers", 30, "locks handed to a waiter")
	flag.DurationVar(&b.ttl, "ttl", 6*time.Second, "length of the locks whose server is frozen")
	flag.DurationVar(&b.patience, "patience", 30*time.Second, "how long a job is watched after that")
	only := flag.String("only", "start,memory,rate,calls,handover,frozen,killed", "what to measure")
	flag.Parse()
	if err := b.all(strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all takes the measures one after the other; each starts servers of its own.
func (b *bench) all(only []string) (err error) {
	if b.lockrun, err = exec.LookPath(b.lockrun); err != nil {
		return err
	}
	if b.lockrun, err = filepath.Abs(b.lockrun); err != nil {
		return err
	}
	measures := map[string]func(*stage){"start": b.start, "memory": b.memory, "rate": b.rate, "calls": b.calls,
		"handover": b.handover, "frozen": b.frozen, "killed": b.killed}
	for _, name := range only {
		take := measures[name]
		if take == nil {
			return fmt.Errorf("nothing is called %q", name)
		}
		if err := perform(take); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// head prints the head of a table.
func head(title string, columns ...string) {
	fmt.Printf("\n%s\n\n| | %s |\n|---%s|\n", title, strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
}

// line prints a line of it.
func line(name string, cells ...string) {
	fmt.Printf("| %s | %s |\n", name, strings.Join(cells, " | "))
}

// ratio compares with a reference.
func ratio(d, reference time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(reference))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
