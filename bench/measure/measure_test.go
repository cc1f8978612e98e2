package measure

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestHandOverIsMeasured(t *testing.T) {
	lock := t.TempDir() + "/lock"
	flock := func(job ...string) []string { return append([]string{"flock", lock}, job...) }
	var took time.Duration
	err := Try(func() { took = Pair{Hold: flock, Wait: flock, Limit: time.Minute}.HandOver() })
	if err != nil || took <= 0 {
		t.Errorf("a handover takes %v, %v", took, err)
	}
}

func TestHandOverWithoutLockIsNone(t *testing.T) {
	bare := func(job ...string) []string { return job }
	hasty := func(job ...string) []string { return []string{"false"} }
	for name, wait := range map[string]func(...string) []string{"refused": hasty, "says something else": func(...string) []string { return []string{"echo", "no"} }} {
		err := Try(func() { Pair{Hold: bare, Wait: wait, Limit: time.Minute}.HandOver() })
		if err == nil {
			t.Errorf("%s: a waiter that is handed nothing is measured", name)
		}
	}
}

func TestChildThatHangsIsNamed(t *testing.T) {
	c := Launch(time.Millisecond, "sleep", "1000")
	defer c.Release()
	if err := Try(func() { c.Line() }); err == nil || !strings.Contains(err.Error(), "nothing is printed within") {
		t.Errorf("a child that says nothing: %v", err)
	}
	if err := Try(func() { c.End() }); err == nil || !strings.Contains(err.Error(), "does not end within") {
		t.Errorf("a child that does not end: %v", err)
	}
}

func TestChildSaysWhatWentWrong(t *testing.T) {
	c := Launch(time.Minute, "sh", "-c", "echo up; echo sorry >&2; echo '	at Peer.java' >&2; exit 3")
	defer c.Release()
	err := Try(func() { c.Say("up"); c.Succeed() })
	if !errors.Is(err, ErrNoMeasure) || !strings.Contains(fmt.Sprint(err), "(sorry)") || !strings.Contains(fmt.Sprint(err), "ends with 3") {
		t.Errorf("a child that fails: %v", err)
	}
}

func TestPerformUndoesBackwards(t *testing.T) {
	var order string
	err := Perform(func(s *Stage) {
		s.Cleanup(func() { order += "b" })
		s.Cleanup(func() { order += "a" })
		s.Fatalf("no %s", "server")
	})
	if err == nil || err.Error() != "no server" || order != "ab" {
		t.Errorf("err = %v, order = %q", err, order)
	}
}
