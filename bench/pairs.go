package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// start is a whole run: take the lease, run /bin/true, give the lease back.
func (b *bench) start() ([]row, error) {
	ours, peer, err := b.pair("start.db", "start.lock", []string{"--key", "k", "--", b.yes}, []string{b.yes})
	if err != nil {
		return nil, err
	}
	bare, err := commandOf("", b.yes)
	if err != nil {
		return nil, err
	}
	version, err := commandOf("", b.lockrun, "version")
	if err != nil {
		return nil, err
	}
	m, err := inTurns(b.runs, []int{0, 0, 0, 0}, ours, peer, bare, version)
	if err != nil {
		return nil, err
	}
	return []row{
		versus("`lockrun --key k -- true` against `flock FILE true`", m[0], m[1]),
		versus("(the start of lockrun alone, `lockrun version`, against `true` alone)", m[3], m[2]),
	}, nil
}

// skip is a run that finds the lock held.
func (b *bench) skip() ([]row, error) {
	ours, peer, err := b.pair("skip.db", "skip.lock", []string{"--key", "k", "--", b.yes}, []string{"-n", b.yes})
	if err != nil {
		return nil, err
	}
	free, err := b.holdBoth("skip.db", "skip.lock")
	if err != nil {
		return nil, err
	}
	defer free()
	m, err := inTurns(b.runs, []int{75, 1}, ours, peer)
	if err != nil {
		return nil, err
	}
	return []row{versus("a skip against `flock -n`", m[0], m[1])}, nil
}

// pair is lockrun on a store and flock on a file. flock's options come before the file, as it wants them.
func (b *bench) pair(store, file string, ours, peer []string) (l, f *command, err error) {
	if l, err = commandOf(b.at(store), b.lockrun, ours...); err != nil {
		return nil, nil, err
	}
	args := append([]string{}, peer[:len(peer)-1]...)
	f, err = commandOf("", b.flock, append(args, b.at(file), peer[len(peer)-1])...)
	return l, f, err
}

func (b *bench) at(name string) string { return filepath.Join(b.dir, name) }

// holdBoth holds key k of the store and the lock file until free is called.
func (b *bench) holdBoth(store, file string) (free func(), err error) {
	l, err := commandOf(b.at(store), b.lockrun, "--key", "k", "--", b.sleep, "100000")
	if err != nil {
		return nil, err
	}
	f, err := commandOf("", b.flock, b.at(file), b.sleep, "100000")
	if err != nil {
		return nil, err
	}
	var pids []int
	free = func() {
		for _, p := range pids {
			for _, c := range children(p) { // flock does not pass a TERM on
				_ = syscall.Kill(c, syscall.SIGTERM)
			}
			_ = syscall.Kill(p, syscall.SIGTERM)
			_, _, _ = reap(p)
		}
	}
	for _, c := range []*command{l, f} {
		pid, err := c.start()
		if err != nil {
			free()
			return nil, err
		}
		pids = append(pids, pid)
		if err := until("the job to start", func() bool { return child(pid, "sleep") != 0 }); err != nil {
			free()
			return nil, err
		}
	}
	return free, nil
}

// bursts starts many at one instant on one free key: one runs, the others are refused.
func (b *bench) bursts() ([]row, error) {
	ours, err := b.oneBurst(75, func(fifo string) (*command, error) {
		return commandOf(b.at("burst.db"), b.lockrun, "--key", "k", "--", "/bin/cat", fifo)
	})
	if err != nil {
		return nil, err
	}
	peer, err := b.oneBurst(1, func(fifo string) (*command, error) {
		return commandOf("", b.flock, "-n", b.at("burst.lock"), "/bin/cat", fifo)
	})
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d starts at one instant on one key: one runs, %d are refused; ", b.burst, b.burst-1)
	return []row{
		versus(what+"median time of a refusal", ours.wall, peer.wall),
		versus("the same; median CPU of a refusal", ours.cpu, peer.cpu),
	}, nil
}

// oneBurst is the middle of five bursts. The winner reads a pipe that is closed when the others have been refused.
func (b *bench) oneBurst(refused int, make func(fifo string) (*command, error)) (cost, error) {
	fifo := b.at("fifo" + fmt.Sprint(refused))
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return cost{}, err
	}
	cmd, err := make(fifo)
	if err != nil {
		return cost{}, err
	}
	if refused == 75 { // the store is there already on any day but the first
		warm := *cmd
		warm.argv = []string{b.lockrun, "--key", "k", "--", b.yes}
		if c, err := warm.run(); err != nil || c.code != 0 {
			return cost{}, fmt.Errorf("cannot make the store: %d, %v", c.code, err)
		}
	}
	var walls, cpus []time.Duration
	for range 5 {
		c, err := b.burstOnce(cmd, fifo, refused)
		if err != nil {
			return cost{}, err
		}
		walls, cpus = append(walls, c.wall), append(cpus, c.cpu)
	}
	return cost{wall: median(walls), cpu: median(cpus)}, nil
}

// burstOnce gives the medians over the refused ones of one burst.
func (b *bench) burstOnce(cmd *command, fifo string, refused int) (cost, error) {
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return cost{}, err
	}
	defer w.Close()
	begun := map[int]time.Time{}
	for range b.burst {
		t := time.Now()
		pid, err := cmd.start()
		if err != nil {
			return cost{}, err
		}
		begun[pid] = t
	}
	codes := map[int]int{}
	var walls, cpus []time.Duration
	for n := range b.burst {
		if n == b.burst-1 { // only the winner is left
			w.Close()
		}
		pid, c, err := reap(-1)
		if err != nil {
			return cost{}, err
		}
		codes[c.code]++
		if c.code == refused {
			walls, cpus = append(walls, time.Since(begun[pid])), append(cpus, c.cpu)
		}
	}
	if codes[0] != 1 || codes[refused] != b.burst-1 {
		return cost{}, fmt.Errorf("%s: exit codes %v", strings.Join(cmd.argv, " "), codes)
	}
	return cost{wall: median(walls), cpu: median(cpus)}, nil
}
