// Command torture attacks lockrun on real stores, and proves by what its jobs saw that no promise was broken.
//
//	go run ./torture                                  # every store, 10,000 grants each; some minutes for each of them
//	go run ./torture -on sqlite,redis -grants 500     # short
//	go run ./torture -on mariadb -seed 7 -keep        # the schedule of an earlier run again; its events stay
//	go run ./torture -mutants                         # broken lockruns, each of which has to be found out
//
// Contenders are real lockrun processes. The jobs that they guard log from when to when they lived, claim a file lock that
// the kernel gives to one at a time, write a counter in a way that loses updates where two do it at once, and show their
// tokens to a receiver that compares them. Meanwhile the processes are killed, stopped and frozen, and the stores lose
// connections, replies, time, room and data. docs/torture.md tells what is judged, and how.
//
// The exit code is 0 where nothing was found, 1 where something was, and 2 where the attack itself failed.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	config
	on      string
	ttl     string
	tags    string
	ldflags string
	source  string
	mutants bool
	names   string
}

func main() {
	o := parse(os.Args[1:])
	code, err := o.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		code = 2
	}
	os.Exit(code)
}

func parse(args []string) *options {
	o := &options{}
	f := flag.NewFlagSet("torture", flag.ExitOnError)
	f.StringVar(&o.on, "on", "", "stores to torture, with commas ("+strings.Join(storeNames(), ",")+")")
	f.Uint64Var(&o.seed, "seed", 0, "what all schedules follow from; 0: another one each time")
	f.IntVar(&o.grants, "grants", 10000, "jobs to start on each store")
	f.DurationVar(&o.atMost, "for", 0, "how long each store may take; 0: as long as the grants do")
	f.IntVar(&o.workers, "workers", 8, "contenders at a time")
	f.IntVar(&o.harmed, "harmed", 20, "of a hundred runs, how many are harmed themselves")
	f.StringVar(&o.ttl, "ttl", "300ms,500ms,1s,2s", "TTLs, with commas")
	f.DurationVar(&o.timeout, "backend-timeout", 2*time.Second, "bound on each exchange with the store")
	f.DurationVar(&o.slack, "slack", 2*time.Second, "what a busy machine may add to any bound")
	f.StringVar(&o.only, "fault", "", "only those faults of the store whose name holds this; \"none\": none")
	f.BoolVar(&o.keep, "keep", false, "leave the folder with all events")
	f.StringVar(&o.lockrun, "lockrun", "", "the program to torture (built from the source)")
	f.StringVar(&o.source, "source", ".", "where lockrun's source is")
	f.StringVar(&o.tags, "tags", defaultTags, "build tags")
	f.StringVar(&o.ldflags, "ldflags", "-s -w", "linker flags")
	f.BoolVar(&o.mutants, "mutants", false, "build lockruns that are broken on purpose, and find them out")
	f.StringVar(&o.names, "mutant", "", "only those mutants whose name holds this")
	_ = f.Parse(args)
	return o
}

func (o *options) run() (int, error) {
	for _, s := range strings.Split(o.ttl, ",") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 2, err
		}
		o.ttls = append(o.ttls, d)
	}
	slices.Sort(o.ttls)
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	o.progress = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	dir, err := os.MkdirTemp("", "lockrun-torture-bin-")
	if err != nil {
		return 2, err
	}
	defer os.RemoveAll(dir)
	b := &builder{source: o.source, tags: o.tags, ldflags: o.ldflags, dir: dir}
	if o.job, err = b.job(); err != nil {
		return 2, err
	}
	if o.mutants {
		return o.findMutants(b)
	}
	if o.lockrun == "" {
		o.lockrun, err = b.lockrun("")
	} else {
		o.lockrun, err = filepath.Abs(o.lockrun)
	}
	if err != nil {
		return 2, err
	}
	return o.all()
}

// all tortures the stores one after the other, each with the same seed.
func (o *options) all() (code int, err error) {
	fmt.Printf("seed %d\n", o.seed)
	var reports []*report
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	o.interrupted = interrupted
	for _, s := range stores {
		if o.on != "" && !slices.Contains(strings.Split(o.on, ","), s.name) {
			continue
		}
		r, err := perform(func(t *stage) *report { return play(t, o.config, s.build) })
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
			code = 2
			continue
		}
		r.tell(os.Stdout)
		reports = append(reports, r)
		switch {
		case r.failure != nil:
			code = 2
		case len(r.violations) > 0:
			code = max(code, 1)
		}
	}
	table(os.Stdout, reports)
	return code, nil
}

func storeNames() (all []string) {
	for _, s := range stores {
		all = append(all, s.name)
	}
	return all
}
