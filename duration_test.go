package main

import (
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "300ms": 300 * time.Millisecond, "1.5h": 90 * time.Minute,
		"1d": day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "0d1s": time.Second, "3650d": 3650 * day, "+5s": 5 * time.Second,
		"1d0s": day, "2d3h4m5s6ms": 2*day + 3*time.Hour + 4*time.Minute + 5*time.Second + 6*time.Millisecond,
	} {
		if got, err := parseDuration(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for s, why := range map[string]string{
		"": "not a duration", "0": "more than zero", "0s": "more than zero", "0d": "more than zero", "-5s": "negative", "-1d": "negative", "-.5s": "negative",
		"--key": "not a duration", "-k": "not a duration", "-": "not a duration",
		"60": "no unit; write 60s", "1.5": "no unit", "soon": "not a duration", "auto": "not a duration", "d": "not a duration", "1d-1h": "not a duration",
		"1d+1h": "not a duration", "12h1d": "not a duration", "1d1d": "not a duration", "1e3d": "not a duration", "1 d": "not a duration",
		"3651d": "ten years", "99999999999d": "ten years", "99999999999h": "not a duration", "87601h": "ten years", "1D": "not a duration", "NaNd": "not a duration",
		"0x1p4d": "not a duration", "1d1": "not a duration",
	} {
		if got, err := parseDuration(s); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, %v; want %s", s, got, err, why)
		}
	}
	for _, s := range []string{"0", "0s", "0d", "0d0h"} {
		if got, err := parseSpan(s); err != nil || got != 0 {
			t.Errorf("span %s: %v, %v", s, got, err)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"1d12h", "0", "-1s", "1.5d", "9223372036854775807ns", "1d9223372036854775807ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err == nil && (d <= 0 || d > maxDuration) {
			t.Errorf("%q gives %v", s, d)
		}
		// What Go reads is read alike, as far as it is in range.
		if want, goErr := time.ParseDuration(s); goErr == nil && want > 0 && want <= maxDuration && (err != nil || d != want) {
			t.Errorf("%q gives %v, %v; Go reads %v", s, d, err, want)
		}
	})
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 59994 * time.Millisecond: "59.99s",
		44*time.Minute + 12*time.Second: "44m12s", time.Hour: "1h", 90 * time.Minute: "1h30m", 27 * time.Hour: "1d3h",
		-5 * time.Second: "-5s", 48 * time.Hour: "2d", 59*time.Minute + 59*time.Second + 700*time.Millisecond: "1h", 59996 * time.Millisecond: "1m", 999600 * time.Microsecond: "1s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
