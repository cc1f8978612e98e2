package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
	"github.com/lockrun/lockrun/internal/supervise"
)

// hostChecks tell what this system can and cannot protect a job from.
func hostChecks(env []string) []backends.Check {
	checks := []backends.Check{suspendCheck(), ntpCheck(readKernelClock())}
	missing := supervise.Unprotected()
	for _, m := range missing {
		checks = append(checks, backends.Check{Backend: "host", Check: "supervision", OK: true, Cause: m.What, Remedy: m.Remedy})
	}
	if len(missing) == 0 {
		checks = append(checks, backends.Check{Backend: "host", Check: "supervision", OK: true, Cause: "every protection that lockrun knows is in place"})
	}
	if variable(env, "KUBERNETES_SERVICE_HOST") != "" {
		checks = append(checks, podCheck(env))
	}
	return checks
}

func suspendCheck() backends.Check {
	k := backends.Check{Backend: "host", Check: "clock", OK: true, Cause: "deadlines are counted on a clock that goes on during suspend"}
	switch runtime.GOOS {
	case "linux", "darwin":
	default:
		k.Cause = "deadlines are counted on a clock that may stand still during suspend"
		k.Remedy = "do not suspend this host while a job holds a lease"
	}
	if boottime.Offset() != 0 {
		k.Cause += "; this process is in a time namespace of its own, which is taken into account"
	}
	return k
}

// kernelClock is what the kernel knows of how this host's clock is kept.
type kernelClock struct {
	unknown      string // why it tells nothing; "" where it does
	synchronised bool
	maxError     time.Duration
}

// ntpCheck tells whether somebody keeps the wall clock. Deadlines do not depend on it; what people read does.
func ntpCheck(c kernelClock) backends.Check {
	k := backends.Check{Backend: "host", Check: "ntp", OK: true}
	switch {
	case c.unknown != "":
		k.Cause = "whether NTP keeps this host's clock cannot be told: " + c.unknown
	case c.synchronised:
		k.Cause = "this host's clock is kept by NTP, at most " + shortDuration(c.maxError) + " off as the kernel knows"
	default:
		k.Cause = "nothing keeps this host's clock, as far as the kernel knows"
		k.Remedy = "run chrony, ntpd or systemd-timesyncd (in a container: on its host); no lease depends on it, but logs are compared by it, and with the embedded store --schedule too"
	}
	return k
}

// podCheck tells what a pod can know of itself.
func podCheck(env []string) backends.Check {
	k := backends.Check{Backend: "host", Check: "kubernetes", OK: true, Cause: "this is a pod"}
	if name := variable(env, "HOSTNAME"); name != "" {
		k.Cause += fmt.Sprintf("; status and history call it %s unless --holder says otherwise", quoted(name))
	}
	return k
}
