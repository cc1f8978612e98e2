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
	tab.print(p, width)
	_ = p.w.Flush()
	return b.String()
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
	if got := widthOf(slave); got != 77 {
		t.Errorf("a terminal is %d wide", got)
	}
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := widthOf(f); got != 0 {
		t.Errorf("a file is %d wide", got)
	}
}
