package redis

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// stored is a run record and what tells its copies apart.
type stored struct {
	backends.Record
	id string
}

// parseRecord reads what lua/records.lua describes.
func parseRecord(key, name, text string) (stored, bool) {
	head, tail, ok := strings.Cut(text, "\n")
	whoText, reason, ok2 := strings.Cut(tail, "\n")
	f := strings.Fields(head)
	var w who
	if !ok || !ok2 || len(f) != 8 || json.Unmarshal([]byte(whoText), &w) != nil {
		return stored{}, false
	}
	r := backends.Record{Key: key, RunID: w.RunID, Holder: w.Holder, Host: w.Host, PID: w.PID, Outcome: backends.Outcome(f[3]),
		Reason: reason, StartedAt: micros(f[4]), EndedAt: micros(f[5]), Waited: time.Duration(w.Waited) * time.Microsecond, Backend: name}
	r.Token, _ = strconv.ParseInt(f[0], 10, 64)
	r.Attempt, _ = strconv.Atoi(f[2])
	if n, err := strconv.Atoi(f[1]); err == nil {
		r.Slot = &n
	}
	if n, err := strconv.Atoi(f[6]); err == nil {
		r.ExitCode = &n
	}
	if n, err := strconv.ParseInt(f[7], 10, 64); err == nil {
		d := time.Duration(n) * time.Microsecond
		r.Duration = &d
	}
	if strings.HasPrefix(reason, "\x01") {
		r.Reason = refusalReason(key, r, reason[1:])
	}
	return stored{r, w.ID}, true
}

// refusalReason puts what a script stored of a refusal into the words of the contract.
func refusalReason(key string, r backends.Record, why string) string {
	var err error
	switch kind, rest := why[:min(1, len(why))], why[min(1, len(why)):]; kind {
	case "D":
		err = &backends.DoneError{Key: key, RunID: r.RunID, At: micros(rest)}
	case "P":
		p := parsePause(rest)
		err = heldByPause(key, p, r.StartedAt)
	case "H", "S":
		_, text, _ := strings.Cut(rest, "\n")
		if row, ok := parseRow(0, text); ok && kind == "S" {
			err = row.held(key, backends.SameRun, row.expires, r.StartedAt)
		} else if ok {
			err = heldByRow(key, row, r.StartedAt)
		}
	}
	return backends.Request{Key: key, RunID: r.RunID}.Refused(err, r.StartedAt).Reason
}

// crashed is the record of a lease that ran out and was not taken since.
func (d dump) crashed(r row, name string) stored {
	slot := r.slot
	return stored{backends.Record{Key: d.key, RunID: r.who.RunID, Attempt: r.attempt, Holder: r.who.Holder, Host: r.who.Host, PID: r.who.PID,
		Token: r.token, Slot: &slot, Outcome: backends.Crashed, StartedAt: r.acquired, EndedAt: r.expires,
		Waited: time.Duration(r.who.Waited) * time.Microsecond, Backend: name}, r.who.ID}
}

// recordArgs are the arguments of lua/record.lua.
func recordArgs(r backends.Record, id string, keep backends.Keep) []any {
	w := who{RunID: r.RunID, Holder: r.Holder, Host: r.Host, PID: r.PID, Waited: r.Waited.Microseconds(), ID: id}
	slot, exit, duration, refusal := "-", "-", "-", "0"
	if r.Slot != nil {
		slot = strconv.Itoa(*r.Slot)
	}
	if r.ExitCode != nil {
		exit = strconv.Itoa(*r.ExitCode)
	}
	if r.Duration != nil {
		duration = strconv.FormatInt(r.Duration.Microseconds(), 10)
	}
	if r.Outcome.Refusal() {
		refusal = "1"
	}
	return []any{refusal, r.Token, slot, r.Attempt, cmp.Or(string(r.Outcome), "failed"), stamp(r.StartedAt), stamp(r.EndedAt), exit, duration,
		w.text(), clean(r.Reason), r.Key, keep.Runs, length(keep.Age)}
}

// clean keeps a reason from being taken for a stored refusal.
func clean(s string) string { return strings.ReplaceAll(s, "\x01", "?") }
