package kafka

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// The documented command shows the records of a run, with the fields of the documented output, in their order.
func TestDocumentedRecords(t *testing.T) {
	text, err := os.ReadFile("../../docs/backends/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ +kafka-console-consumer\.sh (.*\n)+?\n`).FindString(string(text))
	want := recordShapes(string(text))
	if command == "" || len(want) != 3 {
		t.Fatalf("the example's command is %q, and its records are %q", command, want)
	}
	s := newStore(t, 1)
	b := s.open(backends.Options{Timeout: time.Minute})
	r := request("nightly", 1)
	r.Last = true
	l := s.take(b, r)
	s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
	code := 0
	s.again("release", func(ctx context.Context) error {
		return l.Release(ctx, backends.End{Outcome: backends.Succeeded, ExitCode: &code, Duration: time.Second})
	})
	command = strings.NewReplacer("kafka1:9092", s.cluster.Nodes[0].Inner(), "--topic lockrun", "--max-messages 4 --topic "+s.topic).Replace(strings.TrimSpace(command))
	printed := s.script(command)
	if got := recordShapes(printed); len(got) != 4 || !slices.Equal(got[1:], want) { // the first is init's
		t.Errorf("%s\nprinted\n%s\nwhich has the fields\n%s\ninstead of\n%s", command, printed, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// recordShapes are the lines that tell of a record, without what differs from record to record.
func recordShapes(text string) (all []string) {
	for _, line := range regexp.MustCompile(`(?m)^ *LogAppendTime:\d+\s+Offset:\d+\s+\{.*\}$`).FindAllString(text, -1) {
		fields := regexp.MustCompile(`("type":"\w+"|"\w+":)`).FindAllString(line, -1)
		all = append(all, strings.Join(fields, " "))
	}
	return all
}
