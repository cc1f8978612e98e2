package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseDuration reads Go's duration syntax with d for days before it: 90s, 1h30m, 1d12h, 1.5d. Zero and negative
// durations, numbers without a unit, and what is longer than ten years are errors.
func parseDuration(s string) (time.Duration, error) {
	d, err := parseSpan(s)
	if err == nil && d == 0 {
		return 0, errors.New("must be more than zero")
	}
	return d, err
}

// parseSpan is parseDuration where 0 is allowed, with or without a unit.
func parseSpan(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if rest, minus := strings.CutPrefix(s, "-"); minus {
		if rest == "" || !strings.Contains("0123456789.", rest[:1]) {
			return 0, errNoDuration // an option, where its value was left out
		}
		return 0, errors.New("must not be negative")
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("has no unit; write %ss, or another of ms, s, m, h, d", strings.TrimPrefix(s, "+"))
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "", s
	}
	sum, err := parseDays(days)
	if err != nil {
		return 0, err
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || strings.HasPrefix(rest, "-") || found && strings.HasPrefix(rest, "+") {
			return 0, errNoDuration
		}
		sum += d
	}
	if s == "" || found && days == "" {
		return 0, errNoDuration
	}
	if sum > maxDuration || sum < 0 {
		return 0, errors.New("is longer than ten years (3650d)")
	}
	return sum, nil
}

var errNoDuration = errors.New("is not a duration; write it like 90s, 1h30m or 1d12h")

// parseDays reads a decimal number of days. It stays below half of what a time.Duration can hold, so that the caller may
// add.
func parseDays(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	if strings.Trim(s, "0123456789.") != "" {
		return 0, errNoDuration
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errNoDuration
	}
	ns := f * float64(24*time.Hour)
	if ns > math.MaxInt64/4 {
		return 0, errors.New("is longer than ten years (3650d)")
	}
	return time.Duration(ns), nil
}
