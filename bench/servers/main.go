// Command servers measures lockrun on real Redis and MariaDB servers, which it starts itself: what a run costs beside
// flock(1), how many lease operations the backend packages do beside what the server can do at all, how soon a waiter
// gets a lease, and what the two drivers add to a run that uses neither. Like the other bench it gives ratios within one
// run; server and clients share one machine, so that absolute numbers say little.
//
//	go run ./bench/servers -lockrun ./lockrun
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

// bench is one measurement of the machine it runs on.
type bench struct {
	lockrun, flock string // programs, as absolute paths
	tags, ldflags  string // for building lockrun with and without the two drivers
	runs           int    // of each command that is timed as a whole
	contenders     int    // at once on distinct keys
	crowd          int    // at one instant on one key
	span           time.Duration
	rounds         int
	handovers      int
}

func main() {
	b := &bench{}
	flag.StringVar(&b.lockrun, "lockrun", "./lockrun", "the program to measure")
	flag.StringVar(&b.tags, "tags", "urfave_cli_no_docs sqlite_omit_load_extension netgo osusergo", "build tags for the binaries that are compared")
	flag.StringVar(&b.ldflags, "ldflags", "-s -w", "linker flags for them")
	flag.IntVar(&b.runs, "n", 200, "runs of each command")
	flag.IntVar(&b.contenders, "contenders", 100, "contenders at once on distinct keys")
	flag.IntVar(&b.crowd, "crowd", 1000, "contenders at one instant on one key")
	flag.DurationVar(&b.span, "for", 2*time.Second, "how long each round of operations lasts")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of operations, of ours and the server's own in turns")
	flag.IntVar(&b.handovers, "handovers", 40, "leases handed to a waiter")
	on := flag.String("on", "redis,mysql", "which servers to measure on")
	only := flag.String("only", "trips,rate,crowd,handover,start,startup", "what to measure")
	flag.Parse()
	if err := b.all(strings.Split(*on, ","), strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all measures what was asked for and prints one table.
func (b *bench) all(on, only []string) (err error) {
	for name, to := range map[string]*string{"flock": &b.flock, b.lockrun: &b.lockrun} {
		if *to, err = exec.LookPath(name); err != nil {
			return err
		}
		if *to, err = filepath.Abs(*to); err != nil {
			return err
		}
	}
	perServer := map[string]func(*stage, *store) []row{"trips": b.trips, "rate": b.rate, "crowd": b.oneKey, "handover": b.handover}
	once := map[string]func(*stage, []string) []row{"start": b.start, "startup": b.startUp, "firestore": b.firestore}
	fmt.Println("| measure | lockrun | peer | ratio |")
	fmt.Println("|---|---|---|---|")
	for _, name := range only {
		switch {
		case once[name] != nil:
			err = perform(func(s *stage) []row { return once[name](s, on) })
		case perServer[name] != nil:
			for _, scheme := range on {
				if err = perform(func(s *stage) []row { return perServer[name](s, open(s, scheme)) }); err != nil {
					return fmt.Errorf("%s on %s: %w", name, scheme, err)
				}
			}
		default:
			err = fmt.Errorf("nothing is called %q", name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
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

// rates is a row of two rates that were measured in turns. The ratio is the middle one of all rounds, since a busy machine
// changes more from round to round than within one.
func rates(what string, ours, peer []float64) row {
	return row{what, perSecond(median(ours)), perSecond(median(peer)), fmt.Sprintf("%.0f %%", 100*ratio(ours, peer))}
}

// times is the same for durations.
func times(what string, ours, peer []time.Duration) row {
	return row{what, ms(median(ours)), ms(median(peer)), fmt.Sprintf("%.2f", ratio(ours, peer))}
}

// ratio is the median of the rounds' ratios.
func ratio[T time.Duration | float64](ours, peer []T) float64 {
	all := make([]float64, len(ours))
	for i := range ours {
		all[i] = float64(ours[i]) / float64(peer[i])
	}
	return median(all)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func perSecond(r float64) string { return fmt.Sprintf("%.0f/s", r) }
