package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const defaultTags = "urfave_cli_no_docs sqlite_omit_load_extension netgo osusergo"

// builder makes the programs that take part.
type builder struct {
	source  string // folder of lockrun's main package
	tags    string
	ldflags string
	dir     string // where programs go
}

// lockrun builds the program, with the source files that an overlay replaces; "" for none.
func (b *builder) lockrun(overlay string) (string, error) {
	to := filepath.Join(b.dir, "lockrun")
	args := []string{"build", "-trimpath", "-tags", b.tags, "-ldflags", b.ldflags, "-o", to}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return to, b.build(b.source, append(args, ".")...)
}

// job builds what lockrun guards, as a program of its own: it has to start quickly, and many times.
func (b *builder) job() (string, error) {
	to := filepath.Join(b.dir, "job")
	return to, b.build(b.source, "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "./torture/job")
}

func (b *builder) build(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if args[len(args)-1] != "." {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, out)
	}
	return nil
}
