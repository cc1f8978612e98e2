package main

import (
	"fmt"
	"os"
	"time"
)

// observers is a run that is watched against one that is not.
func (b *bench) observers() ([]row, error) {
	plain := []string{"--key", "k", "--", b.yes}
	with := func(more ...string) []string { return append(more, plain...) }
	large := b.at("large.prom")
	if err := b.fill(large, 100); err != nil {
		return nil, err
	}
	rows := []row{}
	for _, c := range []struct {
		what string
		args []string
	}{
		{"a run with `--metrics-file` against one without", with("--metrics-file", b.at("small.prom"))},
		{"the same, where FILE has the sums of 100 keys", with("--metrics-file", large)},
		{"a run with a hook that does nothing against one without", with("--hook", "succeeded=:")},
	} {
		m, err := b.against(c.args, b.lockrun, plain)
		if err != nil {
			return nil, err
		}
		rows = append(rows, versus(c.what, m[0], m[1]))
	}
	if b.before != "" {
		m, err := b.against(plain, b.before, plain)
		if err != nil {
			return nil, err
		}
		rows = append(rows, versus("a run that nobody watches against `-before`", m[0], m[1]))
	}
	return rows, nil
}

// against measures the program with these arguments, and another with its own, on stores of their own.
func (b *bench) against(args []string, other string, others []string) ([]time.Duration, error) {
	ours, err := commandOf(b.at("watched.db"), b.lockrun, args...)
	if err != nil {
		return nil, err
	}
	peer, err := commandOf(b.at("plain.db"), other, others...)
	if err != nil {
		return nil, err
	}
	return inTurns(b.runs, []int{0, 0}, ours, peer)
}

// fill runs once for each of so many keys.
func (b *bench) fill(file string, keys int) error {
	for i := range keys {
		c, err := commandOf(b.at("fill.db"), b.lockrun, "--key", fmt.Sprintf("job-%d", i), "--metrics-file", file, "--", b.yes)
		if err != nil {
			return err
		}
		if _, err := inTurns(1, []int{0}, c); err != nil {
			return err
		}
	}
	_, err := os.Stat(file)
	return err
}
