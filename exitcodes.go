package main

import (
	"errors"
	"sort"

	"github.com/lockrun/lockrun/backends"
)

// lockrun's own exit codes. COMMAND's code is passed on untouched, 128+N where signal N ended it. Several of these are
// the ones of sysexits.h, timeout(1) and the shell, so that they mean what people already know.
const (
	codeOK            = 0
	codeNo            = 1   // an asking or acting verb whose answer is no: not held, nothing to unlock
	codeUsage         = 64  // bad flag, key, value or combination
	codeUnavailable   = 69  // the backend could not answer for certain; COMMAND was not started
	codeInternal      = 70  // a bug in lockrun
	codeSkipped       = 75  // the lease is held by another, or the key is paused; COMMAND was not started
	codeDone          = 76  // this run id has already succeeded
	codeConfig        = 78  // configuration file unreadable or wrong
	codeLost          = 79  // the lease was lost; COMMAND was stopped
	codeTimeout       = 124 // --timeout ended COMMAND
	codeCannotExecute = 126 // COMMAND cannot be executed
	codeNotFound      = 127 // COMMAND is not there
)

// exitNames are the names that --exit-code takes, with the codes they stand for unless told otherwise.
var exitNames = map[string]int{
	"usage":          codeUsage,
	"unavailable":    codeUnavailable,
	"internal":       codeInternal,
	"skipped":        codeSkipped,
	"done":           codeDone,
	"config":         codeConfig,
	"lost":           codeLost,
	"timeout":        codeTimeout,
	"cannot-execute": codeCannotExecute,
	"not-found":      codeNotFound,
}

// sortedExitNames lists the names for messages and help.
func sortedExitNames() []string {
	names := make([]string, 0, len(exitNames))
	for n := range exitNames {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// exit translates one of lockrun's own codes by --exit-code. COMMAND's own codes never come through here.
func (c *Config) exit(code int) int {
	if c == nil || len(c.ExitCodes) == 0 {
		return code
	}
	for name, def := range exitNames {
		if def != code {
			continue
		}
		if to, ok := c.ExitCodes[name]; ok {
			return to
		}
	}
	return code
}

// codeOf is the truth table from an error of the backend to an exit code: what the store positively refused is told
// apart from what nobody knows, which is never a skip.
func codeOf(err error) int {
	var held *backends.HeldError
	var done *backends.DoneError
	var usage *backends.UsageError
	switch {
	case err == nil:
		return codeOK
	case isInternal(err):
		return codeInternal
	case errors.As(err, &held):
		return codeSkipped
	case errors.As(err, &done):
		return codeDone
	case errors.As(err, &usage):
		return codeUsage
	case errors.Is(err, backends.ErrLost):
		return codeLost
	case errors.Is(err, backends.ErrNotHeld):
		return codeNo
	default:
		return codeUnavailable
	}
}
