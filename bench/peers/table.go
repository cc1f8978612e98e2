package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// head prints the head of a table, whose last column is the number of tries.
func head(title string, columns ...string) {
	columns = append(columns, "tries")
	fmt.Printf("\n%s\n\n| | %s |\n|---%s|\n", title, strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
}

// line prints a line of it: what n tries gave, or why there is nothing.
func (p *peer) line(n int, cells ...string) {
	tries := fmt.Sprint(n)
	switch {
	case n == 0:
		cells, tries = append([]string{p.reason()}, make([]string, len(cells)-1)...), ""
	case p.failures > 0:
		tries += fmt.Sprintf(", and %d failed: %s", p.failures, oneLine(p.err))
	}
	fmt.Printf("| %s | %s | %s |\n", p.name, strings.Join(cells, " | "), tries)
}

// inapplicable is why a measure means nothing for a peer.
type inapplicable string

func (i inapplicable) Error() string { return string(i) }

// reason tells why there is nothing about a peer.
func (p *peer) reason() string {
	var i inapplicable
	switch {
	case errors.As(p.err, &i):
		return string(i)
	case p.err == nil:
		return "not measured: no time was left"
	default:
		return "not measured: " + oneLine(p.err)
	}
}

// oneLine fits an error into a table.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "/")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "..."
	}
	return text
}

// turns lets all peers have their tries in turns, so that a busy minute disturbs all alike. Who fails twice is left out,
// and when it gets late, everybody is who has had a try.
func (b *bench) turns(all []*peer, most func(*peer) int, try func(*peer)) {
	tries := make([]int, len(all))
	for round, more := 0, true; more; round++ {
		more = false
		for j := range all {
			k := (round + j) % len(all)
			p := all[k]
			if p.out() || tries[k] >= most(p) || tries[k] > 0 && b.late() {
				continue
			}
			more = true
			if err := measure.Try(func() { try(p) }); err != nil {
				p.err = err
				p.failures++
			} else {
				tries[k]++
			}
		}
	}
}

// out tells that a peer is not measured, or no longer.
func (p *peer) out() bool { return p.failures >= 2 || p.failures == 0 && p.err != nil }

// ratio compares with a reference, which may be missing.
func ratio[T time.Duration | float64](all, reference []T) string {
	if len(all) == 0 || len(reference) == 0 || median(reference) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(median(all))/float64(median(reference)))
}

// middle is the median in milliseconds.
func middle(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	return ms(median(all))
}

// often is the median of a rate.
func often(all []float64) string {
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", median(all))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
