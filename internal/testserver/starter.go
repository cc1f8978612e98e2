package testserver

import (
	"os/exec"
	"runtime"
	"sync"
)

// startOn hands a command to the one thread that starts servers, and returns what cmd.Start does.
//
// The kernel sends a child its Pdeathsig when the *thread* that started it ends (golang/go#27505), not the process, and Go
// ends threads when it likes: so it has to be a thread that lives as long as the process.
func startOn(cmd *exec.Cmd) error {
	done := make(chan error)
	starter() <- start{cmd, done}
	return <-done
}

type start struct {
	cmd  *exec.Cmd
	done chan error
}

var starter = sync.OnceValue(func() chan<- start {
	c := make(chan start)
	go func() {
		runtime.LockOSThread() // never unlocked: this goroutine never ends
		for s := range c {
			s.done <- s.cmd.Start()
		}
	}()
	return c
})
