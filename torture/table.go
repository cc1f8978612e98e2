package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// tell prints what one game came to.
func (r *report) tell(w io.Writer) {
	fmt.Fprintf(w, "\n%s: seed %d, %d runs, %d grants in %v\n", r.arena, r.seed, r.runs, r.grants, r.took.Round(time.Second))
	fmt.Fprintf(w, "  done to runs: %s\n", counts(r.harms))
	fmt.Fprintf(w, "  done to the store: %s\n", counts(r.faults))
	codes := map[string]int{}
	for code, n := range r.codes {
		codes[fmt.Sprintf("%3d", code)] = n
	}
	fmt.Fprintf(w, "  exit codes: %s\n", counts(codes))
	fmt.Fprintf(w, "  overlaps that the contract allows for: %d, while the machine had no time for a guard: %d %v; leases lost because the machine was late: %d\n",
		r.excused, len(r.late), r.late, r.starved)
	fmt.Fprintf(w, "  longest time from the end of a fault to the next job: %v\n", r.recovery.Round(time.Millisecond))
	if r.failure != nil {
		fmt.Fprintf(w, "  the attack itself FAILED: %v\n", r.failure)
	}
	for i, v := range r.violations {
		if i == mostTold {
			fmt.Fprintf(w, "  and %d more\n", len(r.violations)-i)
			break
		}
		fmt.Fprintf(w, "  VIOLATED %v\n", v)
	}
	if r.dir != "" {
		fmt.Fprintf(w, "  all events are in %s\n", r.dir)
	}
}

// mostTold bounds what is printed of what may be hundreds of consequences of one cause.
const mostTold = 20

func counts(m map[string]int) string {
	var all []string
	for _, name := range sorted(m) {
		all = append(all, fmt.Sprintf("%s %d", strings.TrimSpace(name), m[name]))
	}
	return strings.Join(all, ", ")
}

// table prints one line for each store.
func table(w io.Writer, all []*report) {
	fmt.Fprintf(w, "\n| store | seed | runs | grants | harmed | faults | overlaps | lost updates | token inversions | other | allowed | late | starved | recovery | time |\n")
	fmt.Fprintf(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		overlaps, updates, tokens := r.broken(ruleOverlap), r.broken(ruleUpdate), r.broken(ruleToken, ruleFence)
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %v | %v |\n", r.arena, r.seed, r.runs, r.grants, sum(r.harms), sum(r.faults),
			overlaps, updates, tokens, len(r.violations)-overlaps-updates-tokens, r.excused, len(r.late), r.starved, r.recovery.Round(10*time.Millisecond), r.took.Round(time.Second))
	}
}

func (r *report) broken(rules ...string) (n int) {
	for _, v := range r.violations {
		if slices.Contains(rules, v.Rule) {
			n++
		}
	}
	return n
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
