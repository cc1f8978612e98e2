package mysql

import (
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockrun/lockrun/backends"
)

// Literals. Text is always hexadecimal: such a literal is a string of bytes that no character set converts and that no
// SQL mode reads in another way.

func text(s string) string { return "x'" + hex.EncodeToString([]byte(s)) + "'" }

// words is text for a column that people read, cut to its size in bytes.
func words(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > limit {
		s = s[:limit]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return text(s)
}

func number[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func optional[T ~int | ~int64](n *T) string {
	if n == nil {
		return "NULL"
	}
	return number(*n)
}

func micros(d time.Duration) string { return number(d.Microseconds()) }

// ttl is at least a microsecond, the smallest step of the server's clock here.
func ttl(d time.Duration) time.Duration {
	return max(d.Truncate(time.Microsecond), time.Microsecond)
}

// timeLayout is how the server writes a DATETIME(6).
const timeLayout = "2006-01-02 15:04:05.000000"

func instant(t time.Time) string { return "'" + t.UTC().Format(timeLayout) + "'" }

const now = "UTC_TIMESTAMP(6)"

func after(d time.Duration) string  { return now + " + INTERVAL " + micros(d) + " MICROSECOND" }
func before(d time.Duration) string { return now + " - INTERVAL " + micros(d) + " MICROSECOND" }

// live and taken say, of the lease row aliased l, what package backends means by them.
func live(at string) string { return "(l.released = 0 AND l.expire_time > " + at + ")" }

func taken(at string) string { return "(" + live(at) + " OR l.hold_time > " + at + ")" }

func paused(at string) string {
	return "(k.pause_time IS NOT NULL AND (k.pause_until IS NULL OR k.pause_until > " + at + "))"
}

// statement fills the {names} of a template, so that statements read as SQL.
type statement map[string]string

// fill puts values in place of names; what a value holds is not looked at again. A name that is not known stays, and is a
// syntax error. It is a loop and not a strings.Replacer, since building one of those cost more than the exchange.
func (s statement) fill(template string) string {
	var b strings.Builder
	b.Grow(2 * len(template))
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		if value, known := s[name]; known {
			b.WriteString(value)
			template = after
			continue
		}
		b.WriteByte('{')
		template = rest
	}
}

// fields starts a statement with the tables' names and what every one of them may use.
func (t tables) fields(key string) statement {
	return statement{"leases": t.leases, "keys": t.keys, "runs": t.runs, "history": t.history, "waiters": t.waiters, "schema": t.schema,
		"key": text(key), "now": now, "live": live(now), "taken": taken(now), "paused": paused(now)}
}

// transaction joins statements into one text that begins and ends a transaction. Those that are empty are left out.
func transaction(statements ...string) string {
	all := []string{"BEGIN"}
	for _, s := range statements {
		if s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(append(all, "COMMIT"), separator)
}

// separator stands between statements, and nowhere else: no literal can contain it.
const separator = ";\n"

// recordFields are the literals of a record.
func recordFields(r backends.Record, name string) statement {
	kind := kindRun
	if r.Outcome.Refusal() {
		kind = kindRefusal
	}
	var token *int64
	if r.Token != 0 {
		token = &r.Token
	}
	duration := "NULL"
	if r.Duration != nil {
		duration = micros(*r.Duration)
	}
	start, end := now, now
	if !r.StartedAt.IsZero() {
		start = instant(r.StartedAt)
	}
	if !r.EndedAt.IsZero() {
		end = instant(r.EndedAt)
	}
	return statement{"kind": kind, "token": optional(token), "run": text(r.RunID), "attempt": number(r.Attempt),
		"holder": words(r.Holder, backends.MaxHolder), "host": words(r.Host, backends.MaxHolder), "pid": number(r.PID),
		"slot": optional(r.Slot), "outcome": words(string(r.Outcome), 16), "reason": words(r.Reason, backends.MaxReason),
		"code": optional(r.ExitCode), "start": start, "end": end, "waited": micros(r.Waited), "duration": duration,
		"backend": words(cmp.Or(r.Backend, name), backends.MaxHolder)}
}
