package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tableRows are the rows of the first table in README.md that has this heading, as cells.
func tableRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("README.md has no table %q", heading)
	}
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
	for _, cells := range tableRows(t, "| name | code | when |") {
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
	for _, cells := range tableRows(t, "| option | default | meaning |") {
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
