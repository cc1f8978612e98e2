package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/lockrun/lockrun/backends"
)

// writeResult writes the result file: one object with the run record's fields, the code that lockrun exits with, and
// what it said about it. It appears whole or not at all, and a reader sees the old one or the new one. Errors change
// nothing about the run.
func writeResult(path string, rec backends.Record, code int, message string) error {
	path, err := resultTarget(path)
	if err != nil {
		return err
	}
	record, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	own, err := json.Marshal(struct {
		Code    int    `json:"lockrun_exit_code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil {
		return err
	}
	// Two objects become one: the names and the order of the record's fields are its own business.
	joined := append(record[:len(record)-1], ',')
	joined = append(joined, own[1:]...)
	return renameio.WriteFile(path, append(joined, '\n'), 0o644)
}

// resultTarget is the file to replace. A link is followed, so that it stays one. What exists and is no plain file is
// refused: renaming over it would replace /dev/null, and writing into it could block on a pipe that nobody reads.
func resultTarget(path string) (string, error) {
	fi, err := os.Stat(path)
	if os.IsNotExist(err) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a plain file", path)
	}
	return filepath.EvalSymlinks(path)
}
