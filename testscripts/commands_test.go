package testscripts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// poll waits until cond holds, and fails with what where it does not in time.
func poll(ts *testscript.TestScript, within time.Duration, what string, cond func() bool) {
	for start := time.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > within {
			ts.Fatalf("after %v: %s", within, what)
		}
	}
}

func duration(ts *testscript.TestScript, s string) time.Duration {
	d, err := time.ParseDuration(s)
	ts.Check(err)
	return d
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE[,CODE...] CMD...")
	}
	got := strconv.Itoa(codeOf(ts, ts.Exec(args[1], args[2:]...)))
	if !slices.Contains(strings.Split(args[0], ","), got) {
		ts.Fatalf("%s ended with %s, want %s", args[1], got, args[0])
	}
}

// fill replaces {} in each argument.
func fill(args []string, n int) []string {
	filled := make([]string, len(args))
	for i, a := range args {
		filled[i] = strings.ReplaceAll(a, "{}", strconv.Itoa(n))
	}
	return filled
}

func cmdCodes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: codes FROM TO CMD...")
	}
	from, err := strconv.Atoi(args[0])
	ts.Check(err)
	to, err := strconv.Atoi(args[1])
	ts.Check(err)
	env := environ(ts)
	for n := from; n <= to; n++ {
		if got := codeOf(ts, command(ts, env, fill(args[2:], n)).Run()); got != n {
			ts.Fatalf("code %d arrived as %d", n, got)
		}
	}
}

func cmdMany(ts *testscript.TestScript, neg bool, args []string) {
	cut := slices.Index(args, "--")
	if neg || cut < 2 || cut == len(args)-1 {
		ts.Fatalf("usage: many N CODE=COUNT... -- CMD...")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	want := map[int]int{}
	for _, w := range args[1:cut] {
		var code, count int
		_, err := fmt.Sscanf(w, "%d=%d", &code, &count)
		ts.Check(err)
		want[code] = count
	}
	got, messages := together(ts, n, args[cut+1:])
	if fmt.Sprint(got) != fmt.Sprint(want) {
		ts.Fatalf("codes and how often: %v, want %v; messages: %s", got, want, messages)
	}
}

// together starts n commands at one instant and counts their exit codes.
func together(ts *testscript.TestScript, n int, args []string) (map[int]int, string) {
	env := environ(ts)
	var all sync.WaitGroup
	barrier := make(chan struct{})
	errs, outs := make([]error, n), make([]bytes.Buffer, n)
	for i := range n {
		cmd := command(ts, env, fill(args, i+1))
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		all.Go(func() { <-barrier; errs[i] = cmd.Run() })
	}
	close(barrier)
	all.Wait()
	got, messages := map[int]int{}, ""
	for i := range n {
		got[codeOf(ts, errs[i])]++
		messages += outs[i].String()
	}
	return got, messages
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until D CMD...")
	}
	env := environ(ts)
	var last []byte
	poll(ts, duration(ts, args[0]), strings.Join(args[1:], " ")+" does not succeed", func() bool {
		var err error
		last, err = command(ts, env, args[1:]).CombinedOutput()
		if _, ok := err.(*exec.ExitError); err != nil && !ok {
			ts.Fatalf("%v", err)
		}
		return err == nil
	})
	ts.Logf("%s", last)
}

func cmdWaitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: waitfor FILE [REGEXP]")
	}
	re := regexp.MustCompile("")
	if len(args) == 2 {
		re = regexp.MustCompile("(?m)" + args[1])
	}
	file := ts.MkAbs(args[0])
	poll(ts, patience, file+" is not there, or does not match", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && re.Match(text)
	})
}

type stampsKey struct{}
type stamps map[string]time.Time

func cmdStamp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stamp NAME")
	}
	ts.Value(stampsKey{}).(stamps)[args[0]] = time.Now()
}

func cmdElapsed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: elapsed NAME MIN MAX")
	}
	since, ok := ts.Value(stampsKey{}).(stamps)[args[0]]
	if !ok {
		ts.Fatalf("no stamp %q", args[0])
	}
	took := time.Since(since)
	if least, most := duration(ts, args[1]), duration(ts, args[2]); took < least || took > most {
		ts.Fatalf("%v have passed since %s, want %v to %v", took, args[0], least, most)
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: json FILE|stdout FIELD=VALUE...")
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[0]), "\n")
	fields := map[string]any{}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		ts.Fatalf("%s: %v in %q", args[0], err, line)
	}
	for _, a := range args[1:] {
		name, want, _ := strings.Cut(a, "=")
		got, ok := fields[name]
		if !ok {
			ts.Fatalf("there is no field %q in %s", name, line)
		}
		if !matches(got, want) {
			ts.Fatalf("%s is %v, want %s, in %s", name, got, want, line)
		}
	}
}

// matches compares a JSON value with what a script expects.
func matches(got any, want string) bool {
	more, isMore := strings.CutPrefix(want, ">")
	switch {
	case want == "null":
		return got == nil
	case want == "*":
		return got != nil
	case isMore:
		n, err := strconv.ParseFloat(fmt.Sprint(got), 64)
		least, err2 := strconv.ParseFloat(more, 64)
		return err == nil && err2 == nil && n > least
	}
	return got != nil && fmt.Sprint(got) == want
}
