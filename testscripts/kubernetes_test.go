package testscripts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKubernetesManifests has the API's own types read the manifests, strictly, and holds the figures in them against each
// other.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	need(t, "go")
	if testing.Short() {
		t.Skip("-short leaves out what has to be compiled first")
	}
	validate := filepath.Join(t.TempDir(), "manifests")
	cmd := exec.Command("go", "build", "-o", validate, ".") // downloads the API's types where they are not there yet
	cmd.Dir = filepath.Join(repo, "tools/manifests")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const file = "examples/kubernetes/cronjob.yaml"
	out, err := exec.Command(validate, filepath.Join(repo, file)).Output()
	if err != nil {
		t.Fatalf("%s: %v, %s", file, err, out)
	}
	jobs := 0
	for line := range strings.Lines(string(out)) {
		var o cronJob
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "CronJob" {
			jobs++
			o.check(t)
		}
	}
	if jobs == 0 {
		t.Errorf("no CronJob in %s", out)
	}
	// What the API would refuse is refused here too.
	for _, change := range [][2]string{{"\n  concurrencyPolicy:", "\n  concurencyPolicy:"}, {"backoffLimit: 2", "backoffLimit: two"}, {"restartPolicy: Never", "restartPolicy: Never\n          restartPolicy: Never"}} {
		wrong := filepath.Join(t.TempDir(), "wrong.yaml")
		write(t, wrong, []byte(strings.Replace(readRepo(t, file), change[0], change[1], 1)), 0o644)
		if out, err := exec.Command(validate, wrong).CombinedOutput(); err == nil {
			t.Errorf("%s is accepted: %s", change[1], out)
		}
	}
}

// cronJob is what is looked at of a CronJob.
type cronJob struct {
	Kind string
	Spec struct {
		Schedule, TimeZone, ConcurrencyPolicy string
		JobTemplate                           struct {
			Spec struct {
				Template struct {
					Spec struct {
						RestartPolicy                 string
						TerminationGracePeriodSeconds float64
						Containers                    []struct {
							Command, Args []string
							Env           []struct {
								Name, Value string
								ValueFrom   struct{ FieldRef struct{ FieldPath string } }
							}
						}
					}
				}
			}
		}
	}
}

// check compares Kubernetes' settings with lockrun's own, and has the doctor look at those.
func (o *cronJob) check(t *testing.T) {
	t.Helper()
	pod := o.Spec.JobTemplate.Spec.Template.Spec
	if !slices.Contains([]string{"Allow", "Forbid", "Replace"}, o.Spec.ConcurrencyPolicy) || !slices.Contains([]string{"Never", "OnFailure"}, pod.RestartPolicy) || len(pod.Containers) != 1 {
		t.Fatalf("%+v", o)
	}
	c := pod.Containers[0]
	if len(c.Command) != 1 || c.Command[0] != "lockrun" {
		t.Errorf("PID 1 is %q", c.Command)
	}
	holder := false
	for _, e := range c.Env {
		holder = holder || e.Name == "LOCKRUN_HOLDER" && e.ValueFrom.FieldRef.FieldPath == "metadata.name"
	}
	if !holder {
		t.Errorf("status cannot name the pod: %+v", c.Env)
	}
	after := func(flag string) string {
		i := slices.Index(c.Args, flag)
		if i < 0 {
			t.Fatalf("no %s in %q", flag, c.Args)
		}
		return c.Args[i+1]
	}
	grace, err := time.ParseDuration(after("--grace"))
	if err != nil || pod.TerminationGracePeriodSeconds < grace.Seconds()+5 {
		t.Errorf("%v seconds to end, and a grace of %v, %v", pod.TerminationGracePeriodSeconds, grace, err)
	}
	if after("--schedule") != o.Spec.Schedule || o.Spec.TimeZone != "Etc/UTC" {
		t.Errorf("lockrun names the ticks of %q, and the CronJob starts by %q in %q", after("--schedule"), o.Spec.Schedule, o.Spec.TimeZone)
	}
	h := example(t)
	end := slices.Index(c.Args, "--")
	doctor := h.with("KUBERNETES_SERVICE_HOST=10.0.0.1").lockrun(0, append([]string{"doctor", "--json"}, c.Args[:end]...)...)
	if !strings.Contains(doctor.stdout(), `"check":"terminationGracePeriodSeconds"`) {
		t.Errorf("the doctor says nothing of it: %s", doctor.stdout())
	}
}
