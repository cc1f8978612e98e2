package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

func TestWriteResult(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.json")
	seven := 7
	for _, c := range []struct {
		rec  backends.Record
		code int
	}{{backends.Record{Key: "k", Outcome: backends.Failed, ExitCode: &seven, Token: 3}, 7}, {backends.Record{Key: "k", Outcome: backends.Skipped, Reason: "held"}, 75}} {
		if err := writeResult(path, c.rec, c.code, "a \"message\""); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if got["key"] != "k" || got["outcome"] != string(c.rec.Outcome) || got["lockrun_exit_code"] != float64(c.code) || got["message"] != "a \"message\"" {
			t.Errorf("got %s", data)
		}
		if _, there := got["exit_code"]; !there || (got["exit_code"] == nil) != (c.rec.ExitCode == nil) {
			t.Errorf("exit_code is %v in %s", got["exit_code"], data)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func TestWriteResultTouchesNoDevice(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(link, backends.Record{}, 0, ""); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", fi, err)
	}
	if fi, err := os.Stat(target); err != nil || fi.Size() == 0 || fi.Mode().Perm() != 0o600 {
		t.Errorf("the target was not written as it was: %v, %v", fi, err)
	}
	for _, path := range []string{"/dev/null", dir, filepath.Join(dir, "none", "r.json"), filepath.Join(target, "r.json")} {
		if err := writeResult(path, backends.Record{}, 0, ""); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if fi, err := os.Stat("/dev/null"); err != nil || fi.Mode()&os.ModeDevice == 0 {
		t.Fatalf("/dev/null is no device any more: %v, %v", fi, err)
	}
}
