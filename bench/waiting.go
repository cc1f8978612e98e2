package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// waiting is how soon a waiter's command has run once the holder has ended, and what waiting costs meanwhile.
func (b *bench) waiting() ([]row, error) {
	store := b.at("waiting.db")
	fifo := b.at("fifo-waiting")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return nil, err
	}
	holder, err := commandOf(store, b.lockrun, "--key", "k", "--", "/bin/cat", fifo)
	if err != nil {
		return nil, err
	}
	waiter, err := commandOf(store, b.lockrun, "--key", "k", "--wait", "forever", "--", b.yes)
	if err != nil {
		return nil, err
	}
	var after []time.Duration
	for range 100 {
		d, err := handOver(holder, waiter, fifo, 200*time.Millisecond)
		if err != nil {
			return nil, err
		}
		after = append(after, d)
	}
	share, err := b.waiterCPU(holder, waiter, fifo)
	if err != nil {
		return nil, err
	}
	return []row{
		{"from the holder's end to the end of the waiter's `true`, median of 100", ms(median(after)), "", ""},
		{"CPU of a waiter", fmt.Sprintf("%.2f %%", 100*share), "", ""},
	}, nil
}

// handOver lets a waiter wait for a while, ends the holder, and measures until the waiter has done its job.
func handOver(holder, waiter *command, fifo string, wait time.Duration) (time.Duration, error) {
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	h, err := holder.start()
	if err != nil {
		return 0, err
	}
	if err := until("the holder's job", func() bool { return child(h, "cat") != 0 }); err != nil {
		return 0, err
	}
	q, err := waiter.start()
	if err != nil {
		return 0, err
	}
	time.Sleep(wait)
	w.Close()
	if _, c, err := reap(h); err != nil || c.code != 0 {
		return 0, fmt.Errorf("the holder ended with %d, %v", c.code, err)
	}
	ended := time.Now()
	if _, c, err := reap(q); err != nil || c.code != 0 {
		return 0, fmt.Errorf("the waiter ended with %d, %v", c.code, err)
	}
	return time.Since(ended), nil
}

// waiterCPU is the share of one processor that a waiter takes, its start not counted.
func (b *bench) waiterCPU(holder, waiter *command, fifo string) (float64, error) {
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	h, err := holder.start()
	if err != nil {
		return 0, err
	}
	if err := until("the holder's job", func() bool { return child(h, "cat") != 0 }); err != nil {
		return 0, err
	}
	q, err := waiter.start()
	if err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second)
	before, begun := onCPU(q), time.Now()
	time.Sleep(min(b.hold, 10*time.Second))
	share := float64(onCPU(q)-before) / float64(time.Since(begun))
	w.Close()
	_, _, _ = reap(h)
	_, _, _ = reap(q)
	return share, nil
}
