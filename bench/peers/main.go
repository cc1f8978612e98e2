// Command peers puts lockrun beside what people use today to keep a job from running twice: flock(1), etcdctl lock, SET NX
// by redis-cli in a shell, and the JVM's Redisson, ShedLock and Curator, each with its real server, all in one run on one
// machine. The JVM libraries are fetched by Maven and driven by jvm/Peer.java. A peer that cannot be measured is named with
// the reason, and the others are measured all the same.
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
	samples    int // of memory and of calls
	contenders int
	rounds     int           // of operations
	span       time.Duration // how long each of them lasts
	handovers  int
	slowHand   int           // of those that start a JVM
	faults     int           // how often servers are frozen, and wrappers are killed
	ttl        time.Duration // of each lock, where a server is frozen or a wrapper is killed
	patience   time.Duration // how long a job is watched after its server was frozen
	within     time.Duration // for everything; where it gets late, there are fewer tries

	jvm   *jvm
	until time.Time // when the measure that is taken should be over
}

func main() {
	b := &bench{}
	flag.StringVar(&b.lockrun, "lockrun", "./lockrun", "the program to measure")
	flag.IntVar(&b.runs, "n", 100, "starts of each peer")
	flag.IntVar(&b.slowRuns, "n-jvm", 12, "starts of each peer that is a JVM")
	flag.IntVar(&b.samples, "samples", 3, "looks at memory, and counts of server operations")
	flag.IntVar(&b.contenders, "contenders", 100, "contenders at once")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds in which operations are counted")
	flag.DurationVar(&b.span, "for", 3*time.Second, "how long each of them lasts")
	flag.IntVar(&b.handovers, "handovers", 15, "locks handed to a waiter")
	flag.IntVar(&b.slowHand, "handovers-jvm", 8, "locks handed to a waiter that is a JVM")
	flag.IntVar(&b.faults, "faults", 3, "how often servers are frozen, and wrappers are killed")
	flag.DurationVar(&b.ttl, "ttl", 6*time.Second, "length of the locks")
	flag.DurationVar(&b.patience, "patience", 20*time.Second, "how long a job is watched after its server was frozen")
	flag.DurationVar(&b.within, "within", 10*time.Minute, "time for all measures; where it gets short, there are fewer tries")
	only := flag.String("only", "start,memory,rate,leases,calls,handover,frozen,killed", "what to measure")
	flag.Parse()
	if err := b.all(strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measures are what can be measured, each with its share of the time.
var measures = map[string]struct {
	take  func(*bench, *stage)
	share int
}{
	"start": {(*bench).start, 60}, "memory": {(*bench).memory, 50}, "rate": {(*bench).rate, 80}, "leases": {(*bench).leases, 90},
	"calls": {(*bench).calls, 40}, "handover": {(*bench).handover, 140}, "frozen": {(*bench).frozen, 120}, "killed": {(*bench).killed, 70},
}

// all takes the measures one after the other; each starts servers of its own. What one leaves of its share of the time is
// for the next.
func (b *bench) all(only []string) (err error) {
	if b.lockrun, err = exec.LookPath(b.lockrun); err != nil {
		return err
	}
	if b.lockrun, err = filepath.Abs(b.lockrun); err != nil {
		return err
	}
	shares := 0
	for _, name := range only {
		if measures[name].take == nil {
			return fmt.Errorf("nothing is called %q", name)
		}
		shares += measures[name].share
	}
	b.jvm = prepareJVM()
	defer b.jvm.remove()
	b.headline()
	b.until = time.Now()
	for _, name := range only {
		m := measures[name]
		b.until = b.until.Add(b.within * time.Duration(m.share) / time.Duration(shares))
		if err := perform(func(s *stage) { m.take(b, s) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// late tells that a measure that has something should leave it at that.
func (b *bench) late() bool { return time.Now().After(b.until) }

// headline tells what is compared.
func (b *bench) headline() {
	var all []string
	for _, argv := range [][]string{{b.lockrun, "version"}, {"flock", "--version"}, {"etcdctl", "version"},
		{"redis-server", "--version"}, {"/usr/sbin/mariadbd", "--version"}, {"java", "--version"}, {"uname", "-sr"}, {"nproc"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		text, err := cmd.Output()
		first, _, _ := strings.Cut(string(text), "\n")
		if err != nil {
			first = fmt.Sprintf("%s: %v", argv[0], err)
		}
		all = append(all, strings.TrimSpace(first))
	}
	fmt.Printf("Measured on %s: %s processors.\n", time.Now().Format(time.DateOnly), strings.Join(all, "; "))
}
