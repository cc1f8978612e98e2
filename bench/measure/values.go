package measure

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Median is the middle one, or the later of the two in the middle.
func Median[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// HandOver starts holder, which has to run cat, and waiter, which has to print a line, and gives the time from the end of
// the one's job to the first word of the other's: the release, the notice of it, the acquire, and the start of a job.
func HandOver(holder, waiter []string) time.Duration {
	h, w := exec.Command(holder[0], holder[1:]...), exec.Command(waiter[0], waiter[1:]...)
	h.Stderr, w.Stderr = os.Stderr, os.Stderr
	in, err := h.StdinPipe()
	Must(err)
	echo, err := h.StdoutPipe()
	Must(err)
	said, err := w.StdoutPipe()
	Must(err)
	Must(h.Start())
	fmt.Fprintln(in, "up")
	_, err = bufio.NewReader(echo).ReadString('\n') // cat runs, and so the lease is held
	Must(err)
	Must(w.Start())
	// Long enough for the waiter to have been refused, and not in step with any back-off.
	time.Sleep(500*time.Millisecond + rand.N(300*time.Millisecond))
	begin := time.Now()
	in.Close()
	_, err = bufio.NewReader(said).ReadString('\n')
	took := time.Since(begin)
	Must(err)
	Must(h.Wait())
	Must(w.Wait())
	return took
}
