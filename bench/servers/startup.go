package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// startUp is what the two drivers cost a run that uses neither: lockrun built with and without them, on SQLite.
func (b *bench) startUp(s *stage, _ []string) []row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	with, without := filepath.Join(dir, "with"), filepath.Join(dir, "without")
	b.build(with)
	b.build(without, "-overlay", withoutDrivers(dir, driverLine))
	run := func(program string) []string {
		return []string{program, "--backend", "sqlite://" + filepath.Join(dir, "db"), "--key", "k", "--", "true"}
	}
	m := inTurns(2*b.runs, [][]string{run(with), run(without)})
	return []row{
		versus("a run on SQLite, lockrun with the two drivers linked against one without", m[0].wall, m[1].wall),
		versus("the same; CPU", m[0].cpu, m[1].cpu),
		{"what the two drivers add to it; of that CPU; of that package initialisation", fmt.Sprintf("%s; %s; %s", ms(m[0].wall-m[1].wall),
			ms(m[0].cpu-m[1].cpu), ms(initialisation(with)-initialisation(without))), "", ""},
		{"size of the program with and without them", megabytes(with), megabytes(without), ""},
	}
}

// build makes lockrun as the Makefile does.
func (b *bench) build(to string, more ...string) {
	args := append([]string{"build", "-trimpath", "-tags", b.tags, "-ldflags", b.ldflags, "-o", to}, more...)
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		must(fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out))
	}
}

// driverLine is a line of the table of drivers, or an import, that belongs to one of the two.
var driverLine = regexp.MustCompile(`(?m)^.*\b(redis|mysql)(\.Open|").*\n`)

// withoutDrivers writes an overlay for go build in which the table of drivers lacks the lines that match.
func withoutDrivers(dir string, lines *regexp.Regexp) string {
	source, err := os.ReadFile("drivers.go")
	must(err)
	cut := lines.ReplaceAll(source, nil)
	if len(cut) == len(source) {
		must(fmt.Errorf("drivers.go names none of the drivers: %w", errNoMeasure))
	}
	file, overlay := filepath.Join(dir, "drivers.go"), filepath.Join(dir, "overlay.json")
	must(os.WriteFile(file, cut, 0o644))
	original, err := filepath.Abs("drivers.go")
	must(err)
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	must(err)
	must(os.WriteFile(overlay, text, 0o644))
	return overlay
}

func megabytes(file string) string {
	info, err := os.Stat(file)
	must(err)
	return fmt.Sprintf("%.1f MB", float64(info.Size())/1e6)
}

// initLine is what GODEBUG=inittrace=1 prints of a package: init os @0.33 ms, 0.023 ms clock, 1816 bytes, 12 allocs
var initLine = regexp.MustCompile(`(?m)^init \S+ @.* ([0-9.]+) ms clock`)

// initialisation is the median time of all packages' initialisation together.
func initialisation(program string) time.Duration {
	var sums []time.Duration
	for range 31 {
		cmd := exec.Command(program, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		must(err)
		var sum time.Duration
		for _, m := range initLine.FindAllSubmatch(out, -1) {
			d, err := time.ParseDuration(string(m[1]) + "ms")
			must(err)
			sum += d
		}
		sums = append(sums, sum)
	}
	return median(sums)
}
