package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
)

// printedTable is a table as it appears in a terminal of this width.
func printedTable(tab *table, width int) string {
	var b strings.Builder
	p := &page{w: bufio.NewWriter(&b)}
	tab.print(p, screen{width: width})
	_ = p.w.Flush()
	return b.String()
}

// printedLines are what a print function says.
func printedLines(print func(*page)) []string {
	var b strings.Builder
	p := &page{w: bufio.NewWriter(&b)}
	print(p)
	_ = p.w.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func TestTableFitsATerminal(t *testing.T) {
	tab := &table{head: []string{"KEY", "STATE", "HOLDER"}, shrink: []int{0, 2}}
	tab.row(strings.Repeat("schlüssel", 10), "held", "x\x1b[2J\nfake-key  free")
	tab.row("k", "free", "")
	for _, width := range []int{200, 80, 60, 40} {
		got := printedTable(tab, width)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d columns: %q", width, got)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > width || strings.ContainsAny(l, "\x1b") || strings.HasSuffix(l, " ") {
				t.Errorf("%d columns: %d in %q", width, n, l)
			}
		}
		if cut := strings.Contains(got, "…"); cut != (width < 130) {
			t.Errorf("%d columns: %q", width, got)
		}
	}
	if got := printedTable(tab, 0); strings.Contains(got, "…") {
		t.Errorf("cut where nobody looks: %q", got)
	}
}

func TestTableLeavesOutWhatNobodyNeeds(t *testing.T) {
	tab := &table{head: []string{"KEY", "STATE", "RUN ID", "REASON"}, shrink: []int{3}, spare: []int{3, 2}}
	tab.row("k", "held", "", "because of something long")
	if got := printedTable(tab, 0); got != "KEY  STATE  REASON\nk    held   because of something long\n" {
		t.Errorf("%q", got)
	}
	if got := printedTable(tab, 21); got != "KEY  STATE  REASON\nk    held   because …\n" {
		t.Errorf("%q", got)
	}
	if got := printedTable(tab, 15); got != "KEY  STATE\nk    held\n" {
		t.Errorf("%q", got)
	}
	if got := printedTable(tab, 3); got != "KEY  STATE\nk    held\n" {
		t.Errorf("a terminal too narrow for anything: %q", got)
	}
}

func TestTableInColours(t *testing.T) {
	tab := &table{head: []string{"KEY", "STATE"}, paint: map[int]func(string) style{1: stateStyle}}
	tab.row("k", "held")
	var b strings.Builder
	p := &page{w: bufio.NewWriter(&b)}
	tab.print(p, screen{color: true})
	_ = p.w.Flush()
	if want := "\x1b[1mKEY\x1b[0m  \x1b[1mSTATE\x1b[0m\nk    \x1b[32mheld\x1b[0m\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestScreen(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	defer slave.Close()
	for _, c := range []struct {
		env  []string
		want bool
	}{{nil, true}, {[]string{"NO_COLOR=1"}, false}, {[]string{"NO_COLOR="}, true}, {[]string{"TERM=dumb"}, false}, {[]string{"TERM=xterm"}, true}} {
		if got := (&call{io: IO{Out: slave, Env: c.env}}).screen(); got.color != c.want {
			t.Errorf("%q: colours %v", c.env, got.color)
		}
	}
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := (&call{io: IO{Out: f}}).screen(); got != (screen{}) {
		t.Errorf("a file can show %+v", got)
	}
}

func TestWidthOf(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	defer slave.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 77}); err != nil {
		t.Fatal(err)
	}
	if got, _ := sizeOf(slave); got != 77 {
		t.Errorf("a terminal is %d wide", got)
	}
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, _ := sizeOf(f); got != 0 {
		t.Errorf("a file is %d wide", got)
	}
}
