package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/metrics"
)

// tableRows are the rows of the n-th table, from 0, in a file that has this heading, as cells.
func tableRows(t *testing.T, file, heading string, n int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(text), "\n"+heading+"\n")
	if len(tables) < n+2 {
		t.Fatalf("%s has no table %q", file, heading)
	}
	after := tables[n+1]
	for line := range strings.Lines(after) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, cells)
		}
	}
	return rows
}

func TestReadmeTellsEveryExitCode(t *testing.T) {
	told := map[string]int{}
	for _, cells := range tableRows(t, "README.md", "| name | code | when |", 0) {
		n, err := strconv.Atoi(cells[1])
		if err != nil {
			t.Errorf("%s: %v", cells[0], err)
		}
		told[cells[0]] = n
	}
	for name, code := range exitNames {
		if told[name] != code {
			t.Errorf("README.md says %d for %s, which is %d", told[name], name, code)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("README.md tells of an exit code %q, which --exit-code does not know", name)
	}
}

func TestReadmeTellsEveryOptionOfRun(t *testing.T) {
	flag := regexp.MustCompile("^`--([a-z-]+)(?:, -([a-z]))?")
	told := map[string][]string{}
	for _, cells := range tableRows(t, "README.md", "| option | default | meaning |", 0) {
		m := flag.FindStringSubmatch(cells[0])
		if m == nil {
			t.Errorf("no option in %q", cells[0])
			continue
		}
		told[m[1]] = append(m[2:], cells[1:]...)
	}
	for i := range options {
		o := &options[i]
		if o.name == "" || o.name == "help" || o.verbs&vRun == 0 {
			continue
		}
		row, ok := told[o.name]
		switch {
		case !ok:
			t.Errorf("README.md does not tell of --%s", o.name)
		case row[0] != o.short:
			t.Errorf("README.md gives --%s the short form %q, which is %q", o.name, row[0], o.short)
		case o.def != "" && strings.ReplaceAll(row[1], "`", "") != o.def:
			t.Errorf("README.md gives --%s the default %q, which is %q", o.name, row[1], o.def)
		}
		delete(told, o.name)
	}
	for name := range told {
		t.Errorf("README.md tells of --%s, which is no option of run", name)
	}
}

// TestDocsTellEveryFieldOutcomeAndMetric compares docs/observing.md with what is printed.
func TestDocsTellEveryFieldOutcomeAndMetric(t *testing.T) {
	const file = "docs/observing.md"
	code := regexp.MustCompile("`([a-z_-]+)`")
	told := func(heading string, n, cell int) map[string]bool {
		words := map[string]bool{}
		for _, cells := range tableRows(t, file, heading, n) {
			for _, m := range code.FindAllStringSubmatch(cells[cell], -1) {
				words[m[1]] = true
			}
		}
		return words
	}
	same := func(what string, told map[string]bool, printed []string) {
		t.Helper()
		for _, w := range printed {
			if !told[w] {
				t.Errorf("%s does not tell of %s %q", file, what, w)
			}
			delete(told, w)
		}
		for w := range told {
			t.Errorf("%s tells of %s %q, which there is not", file, what, w)
		}
	}
	same("the record's field", told("| field | meaning |", 0, 0), fieldsOf(t, backends.Record{}))
	same("the state's field", told("| field | meaning |", 1, 0), fieldsOf(t, backends.State{}))
	same("the outcome", told("| outcome | of a run |", 0, 0), metrics.Outcomes[:])
	set := metrics.NewSet(true)
	set.Key("k").Add(&metrics.Run{Outcome: "succeeded", Exit: new(int), Ended: time.Unix(1, 0)})
	set.Key("k").SetLease(metrics.Lease{Held: 1, Expires: time.Unix(1, 0), Waiters: new(int)})
	same("the metric", told("| metric | what it tells |", 0, 0), metricsOf(t, set))
}

// fieldsOf are the names in a value's JSON.
func fieldsOf(t *testing.T, v any) (names []string) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(fields))
}

// metricsOf are the names of a set's metrics.
func metricsOf(t *testing.T, set *metrics.Set) (names []string) {
	t.Helper()
	var text strings.Builder
	if _, err := set.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+)`).FindAllStringSubmatch(text.String(), -1) {
		names = append(names, m[1])
	}
	return names
}
