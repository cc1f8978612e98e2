package backends

import (
	"encoding/json"
	"time"
)

// recordJSON fixes names and order of the fields that history and result files show; they are part of the contract with
// users. A nil pointer is null: the field does not apply.
type recordJSON struct {
	Key       string   `json:"key"`
	RunID     *string  `json:"run_id"`
	Attempt   *int     `json:"attempt"`
	Holder    *string  `json:"holder"`
	Host      *string  `json:"host"`
	PID       *int     `json:"pid"`
	Token     *int64   `json:"token"`
	Slot      *int     `json:"slot"`
	Outcome   *Outcome `json:"outcome"`
	Reason    *string  `json:"reason"`
	ExitCode  *int     `json:"exit_code"`
	StartedAt *string  `json:"started_at"`
	EndedAt   *string  `json:"ended_at"`
	Waited    float64  `json:"waited_s"`
	Duration  *float64 `json:"duration_s"`
	Backend   *string  `json:"backend"`
}

// stateJSON is the same for status.
type stateJSON struct {
	Key        string   `json:"key"`
	State      string   `json:"state"`
	Holder     *string  `json:"holder"`
	Host       *string  `json:"host"`
	PID        *int     `json:"pid"`
	Token      *int64   `json:"token"`
	Slot       *int     `json:"slot"`
	AcquiredAt *string  `json:"acquired_at"`
	RenewedAt  *string  `json:"renewed_at"`
	ExpiresAt  *string  `json:"expires_at"`
	ExpiresIn  *float64 `json:"expires_in_s"`
	RunID      *string  `json:"run_id"`
	Reason     *string  `json:"reason"`
	Waiters    *int     `json:"waiters"`
}

// MarshalJSON writes one line. Times are RFC 3339 in UTC with microseconds, durations seconds.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON{
		Key: r.Key, RunID: some(r.RunID), Attempt: some(r.Attempt), Holder: some(r.Holder), Host: some(r.Host),
		PID: some(r.PID), Token: some(r.Token), Slot: r.Slot, Outcome: some(r.Outcome), Reason: some(r.Reason),
		ExitCode: r.ExitCode, StartedAt: stamp(&r.StartedAt), EndedAt: stamp(&r.EndedAt),
		Waited: inSeconds(r.Waited), Duration: seconds(r.Duration), Backend: some(r.Backend),
	})
}

// UnmarshalJSON reads what MarshalJSON wrote, for stores that keep records as JSON.
func (r *Record) UnmarshalJSON(b []byte) error {
	var j recordJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*r = Record{
		Key: j.Key, RunID: value(j.RunID), Attempt: value(j.Attempt), Holder: value(j.Holder), Host: value(j.Host),
		PID: value(j.PID), Token: value(j.Token), Slot: j.Slot, Outcome: value(j.Outcome), Reason: value(j.Reason),
		ExitCode: j.ExitCode, Waited: fromSeconds(j.Waited), Backend: value(j.Backend),
	}
	if j.Duration != nil {
		d := fromSeconds(*j.Duration)
		r.Duration = &d
	}
	var err error
	if r.StartedAt, err = parseStamp(j.StartedAt); err != nil {
		return err
	}
	r.EndedAt, err = parseStamp(j.EndedAt)
	return err
}

// MarshalJSON writes one line, as Record's does.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateJSON{
		Key: s.Key, State: s.State, Holder: some(s.Holder), Host: some(s.Host), PID: some(s.PID), Token: some(s.Token),
		Slot: s.Slot, AcquiredAt: stamp(s.AcquiredAt), RenewedAt: stamp(s.RenewedAt), ExpiresAt: stamp(s.ExpiresAt),
		ExpiresIn: seconds(s.ExpiresIn), RunID: some(s.RunID), Reason: some(s.Reason), Waiters: s.Waiters,
	})
}

// some is nil for a zero value.
func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// timeLayout keeps the six digits that every store can keep, so that times of different records compare as text.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

func stamp(t *time.Time) *string {
	if t == nil || t.IsZero() {
		return nil
	}
	return some(t.UTC().Format(timeLayout))
}

func parseStamp(s *string) (time.Time, error) {
	if s == nil {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, *s)
	return t.UTC(), err
}

func seconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := inSeconds(*d)
	return &s
}

// inSeconds rounds to microseconds. It divides once, since Duration.Seconds adds a fraction to whole seconds, and their
// sum prints as 3.9737460000000002.
func inSeconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond).Microseconds()) / 1e6
}

// fromSeconds rounds to microseconds: 0.1 has no exact binary form.
func fromSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}
