package metrics

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

var oddKeys = []string{"plain", `quo"te`, "new\nline", `back\slash`, `\n`, "tab\tbell\a", "ключ", "a{b}=\"c\",d", "#no comment", " "}

// filled is a set in which every metric of every key has a value.
func filled(observed bool) *Set {
	s := NewSet(observed)
	for i, key := range oddKeys {
		k := s.Key(key)
		for n, o := range Outcomes {
			took, code, waiters := time.Duration(n)*700*time.Millisecond, n, i
			k.Add(&Run{Outcome: o, Acquire: &took, Wait: took * 3, Hold: &took, Ended: time.UnixMicro(1790000000123456 + int64(n)), Exit: &code,
				RenewFailures: n, ReleaseFailures: 1, Takeover: n%2 == 0, Fallback: n%3 == 0})
			if !observed {
				k.SetLease(Lease{Held: i, Expires: time.Unix(1790000060, 0), Waiters: &waiters})
			}
		}
	}
	return s
}

func written(t *testing.T, s *Set) string {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo = %d, %v for %d bytes", n, err, b.Len())
	}
	return b.String()
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	text := written(t, filled(true))
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if again := written(t, s); again != text {
		t.Errorf("read back it is\n%s\nand was\n%s", again, text)
	}
	for _, key := range oddKeys {
		if one := written(t, s.Only(key)); strings.Count(one, "lockrun_takeovers_total{") != 1 {
			t.Errorf("%q alone is\n%s", key, one)
		}
	}
	if empty := written(t, s.Only("no such key")); empty != "" {
		t.Errorf("an unknown key has %q", empty)
	}
}

func TestEveryMetricIsWrittenOnce(t *testing.T) {
	text := written(t, filled(true)) + written(t, filled(false))
	for _, name := range Names() {
		if !strings.Contains(text, "# TYPE "+name+" ") || !strings.Contains(text, "# HELP "+name+" ") {
			t.Errorf("%s is nowhere", name)
		}
	}
	for _, name := range []string{"lockrun_acquire_duration_seconds", "lockrun_renew_failures_total", "lockrun_release_failures_total", "lockrun_fallbacks_total"} {
		if strings.Contains(written(t, filled(false)), name) {
			t.Errorf("%s is derived from records, which do not know it", name)
		}
	}
}

// What cannot be lockrun's must not be written over.
func TestForeignTextIsRefused(t *testing.T) {
	good := written(t, filled(true))
	for name, text := range map[string]string{
		"passwd":          "root:x:0:0:root:/root:/bin/bash\n",
		"another metric":  "node_load1 0.5\n",
		"another with":    `node_cpu{key="a"} 1` + "\n",
		"no key":          "lockrun_takeovers_total 1\n",
		"no key label":    `lockrun_takeovers_total{job="a"} 1` + "\n",
		"torn label":      `lockrun_takeovers_total{key="a`,
		"torn escape":     `lockrun_takeovers_total{key="a\`,
		"torn number":     `lockrun_takeovers_total{key="a"} `,
		"not a number":    `lockrun_takeovers_total{key="a"} NaN`,
		"infinite":        `lockrun_takeovers_total{key="a"} +Inf`,
		"negative":        `lockrun_takeovers_total{key="a"} -1`,
		"unknown outcome": `lockrun_runs_total{key="a",outcome="exploded"} 1`,
		"unknown bucket":  `lockrun_wait_duration_seconds_bucket{key="a",le="0.3"} 1`,
		"falling buckets": strings.Replace(good, `lockrun_wait_duration_seconds_bucket{key="plain",le="1"} `, `lockrun_wait_duration_seconds_bucket{key="plain",le="1"} 9`, 1),
		"cut in a line":   good[:strings.LastIndex(good, "}")+1],
		"binary":          "\x00\x01\x02",
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%s is taken for ours: %q", name, text[:min(len(text), 80)])
		}
	}
	if _, err := Parse(`lockrun_of_a_later_version{key="a"} 1` + "\n"); err != nil {
		t.Errorf("a later version's metric: %v", err)
	}
}

func TestBuckets(t *testing.T) {
	s := NewSet(true)
	k := s.Key("k")
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, 2 * time.Millisecond, 5 * time.Second, time.Hour} {
		k.Add(&Run{Outcome: "failed", Acquire: &d})
	}
	text := written(t, s)
	for _, want := range []string{`_bucket{key="k",le="0.001"} 3`, `_bucket{key="k",le="0.0025"} 4`, `_bucket{key="k",le="2.5"} 4`, `_bucket{key="k",le="5"} 5`,
		`_bucket{key="k",le="+Inf"} 6`, `_sum{key="k"} 3605.003`, `_count{key="k"} 6`} {
		if !strings.Contains(text, "lockrun_acquire_duration_seconds"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestTheLatestRunSaysTheExitCode(t *testing.T) {
	s := NewSet(true)
	at := time.Unix(1790000000, 0)
	for i, ago := range []time.Duration{5, 1, 9} {
		code := i
		s.Key("k").Add(&Run{Outcome: "succeeded", Ended: at.Add(-ago * time.Second), Exit: &code})
	}
	s.Key("k").Add(&Run{Outcome: "skipped", Ended: at})
	text := written(t, s)
	for _, want := range []string{`lockrun_last_exit_code{key="k"} 1`, `lockrun_last_success_timestamp_seconds{key="k"} 1789999999`, `lockrun_runs_total{key="k",outcome="skipped"} 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestPrometheusAcceptsIt(t *testing.T) {
	testserver.Need(t, "promtool")
	for _, s := range []*Set{filled(true), filled(false)} {
		cmd := exec.Command("promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(written(t, s))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("observed %v: promtool check metrics: %v\n%s", s.Observed, err, out)
		}
	}
}

func BenchmarkReadAndWrite(b *testing.B) {
	for _, keys := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			s := NewSet(true)
			for i := range keys {
				s.Key(fmt.Sprintf("job-%d", i)).Add(&Run{Outcome: "succeeded"})
			}
			var text bytes.Buffer
			_, _ = s.WriteTo(&text)
			for b.Loop() {
				s, err := Parse(text.String())
				if err != nil {
					b.Fatal(err)
				}
				var out bytes.Buffer
				_, _ = s.WriteTo(&out)
			}
		})
	}
}

// What a path would not keep is encoded as a Pushgateway decodes it.
func TestGroupPath(t *testing.T) {
	for _, c := range [][3]string{
		{"nightly", "web-1.example", "/metrics/job/lockrun/key/nightly/instance/web-1.example"},
		{"a/b", "h", "/metrics/job/lockrun/key@base64/YS9i/instance/h"},
		{"..", "", "/metrics/job/lockrun/key@base64/Li4/instance@base64/="},
		{"ü ?#%", "h", "/metrics/job/lockrun/key@base64/w7wgPyMl/instance/h"},
	} {
		if got := GroupPath(c[0], c[1]); got != c[2] {
			t.Errorf("%q on %q: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
