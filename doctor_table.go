package main

import (
	"strings"
	"unicode/utf8"

	"github.com/lockrun/lockrun/backends"
)

// Verdicts on a finding. What failed keeps jobs from running or from being protected; advice does not.
const (
	verdictOK     = "ok"
	verdictAdvice = "advice"
	verdictFailed = "FAILED"
)

func verdict(k backends.Check) string {
	switch {
	case !k.OK:
		return verdictFailed
	case k.Remedy != "":
		return verdictAdvice
	}
	return verdictOK
}

func verdictStyle(v string) style {
	return map[string]style{verdictOK: green, verdictAdvice: yellow, verdictFailed: red}[v]
}

// tellChecks prints the findings as one table. On a terminal causes and remedies go on in the next line, under their
// beginning; elsewhere each finding is one line.
func tellChecks(p *page, checks []backends.Check, s screen) {
	t := &table{head: []string{"RESULT", "WHERE", "CHECK", "FINDING"}, paint: map[int]func(string) style{0: verdictStyle}}
	for _, k := range checks {
		t.row(verdict(k), k.Backend, k.Check, k.Cause)
	}
	cols := t.layout(0)
	begin := cols[0] + cols[1] + cols[2] + 6
	below := s.width > 0 && s.width-begin < 30 // too narrow beside the other columns
	if below {
		begin = cols[0] + 2
	}
	room := 0
	if s.width > 0 {
		room = max(s.width-begin, 20)
	}
	if below {
		p.line(joinCells([]string{"RESULT", "FINDING"}, cols, func(int, string) style { return headStyle(s) }))
	} else {
		p.line(t.headText(cols, s))
	}
	for i, k := range checks {
		lines := findingLines(k, room)
		row := t.rows[i]
		if below {
			p.line(t.rowText([]string{row[0], row[1] + " " + row[2]}, []int{cols[0], s.width - begin}, s))
			lines = append([]string{""}, lines...)
		} else {
			p.line(t.rowText([]string{row[0], row[1], row[2], lines[0]}, append(cols[:3:3], len(lines[0])), s))
		}
		for _, l := range lines[1:] {
			p.line(strings.Repeat(" ", begin) + l)
		}
	}
}

// findingLines are cause and remedy: in one line where there is no bound, else in lines of at most room.
func findingLines(k backends.Check, room int) []string {
	cause, remedy := oneLine(k.Cause), oneLine(k.Remedy)
	if room == 0 {
		if remedy != "" {
			cause += "; " + remedy
		}
		return []string{cause}
	}
	lines := wrap(cause, room)
	if remedy != "" {
		for i, l := range wrap(remedy, room-3) {
			mark := "   "
			if i == 0 {
				mark = "-> "
			}
			lines = append(lines, mark+l)
		}
	}
	return lines
}

// wrap cuts a text into lines of at most width, between words where there are any. It returns at least one.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		for utf8.RuneCountInString(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			r := []rune(word)
			lines, word = append(lines, string(r[:width])), string(r[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" || lines == nil {
		lines = append(lines, line)
	}
	return lines
}
