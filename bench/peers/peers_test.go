package main

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTurnsGoOnWithoutWhoFails(t *testing.T) {
	b := &bench{until: time.Now().Add(time.Hour)}
	good, bad, absent, once := &peer{name: "good"}, &peer{name: "bad"}, &peer{name: "absent", err: errors.New("not here")}, &peer{name: "once"}
	var order []string
	b.turns([]*peer{good, bad, absent, once}, some(3, 1), func(p *peer) {
		order = append(order, p.name)
		if p == bad || p == once && p.failures == 0 {
			must(errors.New("first\n| second"))
		}
	})
	want := []string{"good", "bad", "once", "bad", "once", "good", "once", "good", "once"}
	if slices.Sort(order); !slices.Equal(order, slices.Sorted(slices.Values(want))) {
		t.Errorf("turns = %v, want %v in some order", order, want)
	}
	if got, want := bad.reason(), "not measured: first / second"; got != want {
		t.Errorf("reason = %q, want %q", got, want)
	}
	if !absent.out() || !bad.out() || once.out() || good.out() {
		t.Errorf("out: absent %v, bad %v, once %v, good %v", absent.out(), bad.out(), once.out(), good.out())
	}
	absent.err = inapplicable("cannot wait")
	if got, want := absent.reason(), "cannot wait"; got != want {
		t.Errorf("reason = %q, want %q", got, want)
	}
}

func TestLateTurnsAreOneEach(t *testing.T) {
	b := &bench{until: time.Now().Add(-time.Second)}
	n := 0
	b.turns([]*peer{{}, {jvm: []string{"java"}}}, some(5, 5), func(*peer) { n++ })
	if n != 2 {
		t.Errorf("%d turns when it is late, want one for each of two", n)
	}
}

func TestSinceLeavesTheLookOut(t *testing.T) {
	total := 0
	fresh := since(func() int { total += 2; return total })
	if got := fresh(); got != 0 {
		t.Errorf("%d operations of nobody", got)
	}
	total += 7
	if got := fresh(); got != 7 {
		t.Errorf("%d operations, want 7", got)
	}
}

func TestAwaitDeath(t *testing.T) {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err == nil {
		err = cat.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if died, _ := awaitDeath(cat.Process.Pid, 0); died {
		t.Error("a process that waits for its input is said to be dead")
	}
	in.Close()
	if died, _ := awaitDeath(cat.Process.Pid, time.Minute); !died { // a zombie counts
		t.Error("a process that has ended is said to live")
	}
	_ = cat.Wait()
}

func TestFateIsTold(t *testing.T) {
	f := &fate{tries: 3, died: []time.Duration{time.Second, 3 * time.Second, 2 * time.Second}}
	if got, want := f.end(seconds, time.Minute, "runs on"), "dead after 2.0 s, at most 3.0 s"; got != want {
		t.Errorf("end = %q, want %q", got, want)
	}
	f = &fate{tries: 3, alive: 2, second: 1, died: []time.Duration{time.Second}}
	if got, want := f.end(seconds, time.Minute, "runs on"), "runs on in 2 of 3, else dead after 1.0 s"; got != want {
		t.Errorf("end = %q, want %q", got, want)
	}
	if got, want := f.beside(), "**yes**, in 1 of 2"; got != want {
		t.Errorf("beside = %q, want %q", got, want)
	}
	f = &fate{tries: 1, alive: 1}
	if got := f.end(seconds, time.Minute, "runs on"); !strings.HasPrefix(got, "runs on, watched for ") || f.beside() != "no" {
		t.Errorf("end = %q, beside = %q", got, f.beside())
	}
}
