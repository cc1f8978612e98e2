package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// table is a listing for people. Scripts take --json.
type table struct {
	head   []string
	rows   [][]string
	shrink []int                      // columns that may be cut where a terminal is narrow, the first ones first
	spare  []int                      // columns that go where they are empty, or where a terminal has no room even so, the first ones first
	paint  map[int]func(string) style // colour of a cell, by what is in it
}

// style is a colour, as the numbers of a terminal's SGR sequence; "" is none.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// on is the text in this style.
func (s style) on(text string) string {
	if s == "" || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = oneLine(c)
	}
	t.rows = append(t.rows, cells)
}

// print writes the table with columns as wide as what is in them, or as the screen has room for.
func (t *table) print(p *page, s screen) {
	cols := t.layout(s.width)
	p.line(t.headText(cols, s))
	for _, r := range t.rows {
		p.line(t.rowText(r, cols, s))
	}
}

// gone is the width of a column that is not shown.
const gone = -1

// layout settles the width of each column for a screen this wide, 0 for no bound.
func (t *table) layout(width int) []int {
	cols := make([]int, len(t.head))
	for _, r := range t.rows {
		for i, c := range r {
			cols[i] = max(cols[i], utf8.RuneCountInString(c))
		}
	}
	for i, h := range t.head {
		if cols[i] == 0 && len(t.rows) > 0 && slices.Contains(t.spare, i) {
			cols[i] = gone
			continue
		}
		cols[i] = max(cols[i], utf8.RuneCountInString(h))
	}
	if width == 0 {
		return cols
	}
	for _, i := range append([]int{gone}, t.spare...) {
		if i != gone {
			cols[i] = gone
		}
		fitted := slices.Clone(cols)
		if t.fit(fitted, width) || i == t.last() {
			return fitted
		}
	}
	return cols
}

// last is the spare column that goes last.
func (t *table) last() int {
	if len(t.spare) == 0 {
		return gone
	}
	return t.spare[len(t.spare)-1]
}

// fit narrows the columns that may be narrowed, but none below what its heading and a few letters need, and tells
// whether that was enough.
func (t *table) fit(cols []int, width int) bool {
	sum := -2
	for _, c := range cols {
		if c != gone {
			sum += c + 2
		}
	}
	for _, i := range t.shrink {
		if sum <= width {
			return true
		}
		least := min(cols[i], max(len(t.head[i]), 8))
		if cut := min(sum-width, cols[i]-least); cols[i] != gone {
			cols[i] -= cut
			sum -= cut
		}
	}
	return sum <= width
}

func (t *table) headText(cols []int, s screen) string {
	return joinCells(t.head, cols, func(int, string) style { return headStyle(s) })
}

func headStyle(s screen) style {
	if s.color {
		return bold
	}
	return ""
}

func (t *table) rowText(cells []string, cols []int, s screen) string {
	return joinCells(cells, cols, func(i int, cell string) style {
		if paint := t.paint[i]; s.color && paint != nil {
			return paint(cell)
		}
		return ""
	})
}

// joinCells pads or cuts the cells to their columns. What is cut ends in an ellipsis; nothing ends in spaces.
func joinCells(cells []string, cols []int, paint func(int, string) style) string {
	var b strings.Builder
	room := 0
	for i, c := range cells {
		if cols[i] == gone {
			continue
		}
		st := paint(i, c)
		n := utf8.RuneCountInString(c)
		if n > cols[i] {
			c, n = string([]rune(c)[:max(cols[i]-1, 0)])+"…", cols[i]
		}
		if c != "" {
			b.WriteString(strings.Repeat(" ", room))
			b.WriteString(st.on(c))
			room = 0
		}
		room += cols[i] - n + 2
	}
	return b.String()
}

// screen is what stdout can show: 0 wide and high, and without colours, where it is no terminal.
type screen struct {
	width, height int
	color         bool
}

// screen looks at stdout. NO_COLOR (no-color.org) and TERM=dumb are obeyed.
func (c *call) screen() screen {
	w, h := sizeOf(c.io.Out)
	if fd := fdOf(c.io.Out); fd < 0 || !isatty.IsTerminal(uintptr(fd)) {
		return screen{}
	}
	return screen{width: w, height: h, color: variable(c.io.Env, "NO_COLOR") == "" && variable(c.io.Env, "TERM") != "dumb"}
}

// variable is the value of an environment variable, "" where it is not set.
func variable(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// sizeOf is the width and height of the terminal that f is, or 0.
func sizeOf(f *os.File) (width, height int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = conn.Control(func(fd uintptr) {
		if ws, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			width, height = int(ws.Col), int(ws.Row)
		}
	})
	return width, height
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
