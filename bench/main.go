// Command bench measures what lockrun costs beside flock(1), as ratios within one run, because milliseconds differ from
// machine to machine and from minute to minute. Both commands of a pair are started by the same few lines, in turns.
//
//	go run ./bench -lockrun ./lockrun
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// bench is one measurement of the machine it runs on.
type bench struct {
	lockrun, flock, yes, sleep string // programs, as absolute paths
	before                     string // an earlier lockrun; "" for none
	dir                        string // where stores and lock files live
	runs                       int
	burst                      int
	hold                       time.Duration
	keys, records              int
}

func main() {
	b := &bench{}
	flag.StringVar(&b.lockrun, "lockrun", "./lockrun", "the program to measure")
	flag.StringVar(&b.before, "before", "", "an earlier lockrun, for observers to compare with")
	flag.IntVar(&b.runs, "n", 300, "runs of each command of a pair")
	flag.IntVar(&b.burst, "burst", 200, "starts at one instant")
	flag.DurationVar(&b.hold, "hold", time.Minute, "how long the idle CPU is watched")
	flag.IntVar(&b.keys, "keys", 100_000, "keys of the grown store")
	flag.IntVar(&b.records, "records", 1_000_000, "history records of the grown store")
	only := flag.String("only", "start,skip,stores,burst,memory,idle,waiting,growth,observers", "what to measure")
	flag.Parse()
	if err := b.all(strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all measures what was asked for and prints one table.
func (b *bench) all(only []string) error {
	debug.SetGCPercent(-1) // a collection in the middle of a run would be counted as the command's
	if err := b.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	measures := map[string]func() ([]row, error){
		"start": b.start, "skip": b.skip, "stores": b.stores, "burst": b.bursts, "memory": b.memory, "idle": b.idle, "waiting": b.waiting, "growth": b.growth, "observers": b.observers,
	}
	fmt.Println("| measure | lockrun | peer | ratio |")
	fmt.Println("|---|---|---|---|")
	for _, name := range only {
		f := measures[name]
		if f == nil {
			return fmt.Errorf("nothing is called %q", name)
		}
		rows, err := f()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range rows {
			fmt.Println(r)
		}
	}
	return nil
}

// prepare finds the programs and makes a folder beside this one, so that a real file system is measured, not /tmp.
func (b *bench) prepare() (err error) {
	for name, to := range map[string]*string{"flock": &b.flock, "true": &b.yes, "sleep": &b.sleep, b.lockrun: &b.lockrun} {
		if *to, err = exec.LookPath(name); err != nil {
			return err
		}
		if *to, err = filepath.Abs(*to); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("bench/out", 0o755); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("bench/out", ""); err != nil {
		return err
	}
	b.dir, err = filepath.Abs(b.dir)
	return err
}

// row is one line of the table.
type row struct{ what, ours, peer, ratio string }

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |", r.what, r.ours, r.peer, r.ratio)
}

// versus is a row of two durations.
func versus(what string, ours, peer time.Duration) row {
	return row{what, ms(ours), ms(peer), fmt.Sprintf("%.2f", float64(ours)/float64(peer))}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
