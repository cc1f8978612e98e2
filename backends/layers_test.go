package backends_test

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/lockrun/lockrun"

// goList returns the lines of go list with this format.
func goList(t *testing.T, format string, patterns ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}

// The arrows of the design point one way: main to drivers to the contract to the standard library.
func TestTheContractImportsOnlyTheStandardLibrary(t *testing.T) {
	for _, dep := range goList(t, `{{if not .Standard}}{{.ImportPath}}{{end}}`, "-deps", module+"/backends") {
		if dep != module+"/backends" {
			t.Errorf("backends depends on %s", dep)
		}
	}
}

func TestInternalPackagesDoNotKnowBackends(t *testing.T) {
	for _, line := range goList(t, `{{.ImportPath}}:{{join .Deps ","}}`, module+"/internal/...") {
		name, deps, _ := strings.Cut(line, ":")
		for dep := range strings.SplitSeq(deps, ",") {
			if dep == module || strings.HasPrefix(dep, module+"/backends") {
				t.Errorf("%s depends on %s", name, dep)
			}
		}
	}
}

// A driver knows the contract and one client library, never another driver, the suite or main.
func TestDriversDoNotKnowEachOther(t *testing.T) {
	for _, line := range goList(t, `{{.ImportPath}}:{{join .Deps ","}}`, module+"/backends/...") {
		name, deps, _ := strings.Cut(line, ":")
		driver, ok := strings.CutPrefix(name, module+"/backends/")
		if !ok || driver == "backendtest" {
			continue
		}
		driver, _, _ = strings.Cut(driver, "/")
		for dep := range strings.SplitSeq(deps, ",") {
			other, ok := strings.CutPrefix(dep, module+"/backends/")
			if ok && other != driver && !strings.HasPrefix(other, driver+"/") || dep == module || dep == "testing" {
				t.Errorf("%s depends on %s", name, dep)
			}
		}
	}
}
