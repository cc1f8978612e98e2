package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/lockrun/lockrun/internal/testserver"
)

// spaces is how many hosts there are whose clocks read another time since their start than ours.
const spaces = 2

// makeSpaces makes time namespaces and gives the files by which to enter them; none where the kernel or our rights do not
// allow it. A namespace lives as long as the process that keeps it.
func makeSpaces(t testserver.TB, g *game) (files []string) {
	for _, offset := range []string{"86400", "-100"} {
		cmd := exec.Command("unshare", "--time", "--boottime="+offset, "--monotonic="+offset, "--fork", "--kill-child", "--",
			"sh", "-c", "echo $$; exec sleep infinity")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = startOn(cmd)
		}
		if err != nil {
			t.Logf("no time namespaces here: %v", err)
			return nil
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pid, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Logf("no time namespaces here")
			return nil
		}
		files = append(files, fmt.Sprintf("/proc/%s/ns/time", pid[:len(pid)-1]))
	}
	if _, err := exec.LookPath("nsenter"); err != nil || exec.Command("nsenter", "--time="+files[0], "true").Run() != nil {
		t.Logf("no time namespace can be entered here")
		return nil
	}
	return files
}
