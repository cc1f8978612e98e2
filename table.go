package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// table is a listing for people. Scripts take --json.
type table struct {
	head   []string
	rows   [][]string
	shrink []int // columns that may be cut where a terminal is narrow, the first ones first
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = oneLine(c)
	}
	t.rows = append(t.rows, cells)
}

// print writes the table with columns as wide as what is in them; width is that of the terminal, 0 for no bound.
func (t *table) print(p *page, width int) {
	cols := t.widths()
	t.fit(cols, width)
	p.line(rowText(t.head, cols))
	for _, r := range t.rows {
		p.line(rowText(r, cols))
	}
}

func (t *table) widths() []int {
	cols := make([]int, len(t.head))
	for _, r := range append([][]string{t.head}, t.rows...) {
		for i, c := range r {
			cols[i] = max(cols[i], utf8.RuneCountInString(c))
		}
	}
	return cols
}

// fit narrows the columns that may be narrowed, but none below what its heading and a few letters need.
func (t *table) fit(cols []int, width int) {
	sum := 2 * (len(cols) - 1)
	for _, c := range cols {
		sum += c
	}
	for _, i := range t.shrink {
		if width == 0 || sum <= width {
			return
		}
		least := min(cols[i], max(len(t.head[i]), 8))
		cut := min(sum-width, cols[i]-least)
		cols[i] -= cut
		sum -= cut
	}
}

func rowText(cells []string, cols []int) string {
	var b strings.Builder
	for i, c := range cells {
		n := utf8.RuneCountInString(c)
		if n > cols[i] {
			c, n = string([]rune(c)[:max(cols[i]-1, 0)])+"…", cols[i]
		}
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", cols[i]-n+2))
	}
	return strings.TrimRight(b.String(), " ")
}

// widthOf is the width of the terminal that f is, or 0.
func widthOf(f *os.File) (width int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Control(func(fd uintptr) {
		if ws, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			width = int(ws.Col)
		}
	})
	return width
}

// shownKey is a key as it stands in a listing: quoted where it could be taken for something else.
func shownKey(key string) string {
	if strings.ContainsAny(key, " \"\\") || oneLine(key) != key {
		return strconv.Quote(key)
	}
	return key
}

// shortDuration tells a duration with two units at most, as people say it: 44m12s, 1d3h, 250ms.
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 0 {
		return "-" + shortDuration(-d)
	}
	// A duration that rounds up to the next unit is told in that one: 1h, not 60m.
	if r := d.Round(10 * time.Millisecond); r < time.Minute {
		if d < time.Second {
			r = d.Round(time.Millisecond)
		}
		return r.String()
	}
	if r := d.Round(time.Second); r < time.Hour {
		return twoUnits(int(r/time.Minute), "m", int(r%time.Minute/time.Second), "s")
	}
	if r := d.Round(time.Minute); r < day {
		return twoUnits(int(r/time.Hour), "h", int(r%time.Hour/time.Minute), "m")
	}
	r := d.Round(time.Hour)
	return twoUnits(int(r/day), "d", int(r%day/time.Hour), "h")
}

func twoUnits(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, unitA)
	}
	return fmt.Sprintf("%d%s%d%s", a, unitA, b, unitB)
}
