package backends

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var (
	at   = time.Date(2026, 11, 30, 16, 2, 3, 456789000, time.FixedZone("", 5*3600))
	slot = 0
	code = 3
	took = 1500 * time.Millisecond
)

func TestRecordJSON(t *testing.T) {
	full := Record{Key: "a\nb", RunID: "r", Attempt: 2, Holder: "h", Host: "o", PID: 7, Token: 9, Slot: &slot, Outcome: Failed,
		Reason: "why", ExitCode: &code, StartedAt: at, EndedAt: at.Add(took), Waited: 250 * time.Millisecond, Duration: &took, Backend: "memory:"}
	got, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"key":"a\nb","run_id":"r","attempt":2,"holder":"h","host":"o","pid":7,"token":9,"slot":0,"outcome":"failed",` +
		`"reason":"why","exit_code":3,"started_at":"2026-11-30T11:02:03.456789Z","ended_at":"2026-11-30T11:02:04.956789Z",` +
		`"waited_s":0.25,"duration_s":1.5,"backend":"memory:"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Record
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	full.StartedAt, full.EndedAt = full.StartedAt.UTC(), full.EndedAt.UTC()
	if !reflect.DeepEqual(back, full) {
		t.Errorf("read back %+v, want %+v", back, full)
	}
}

func TestRecordJSONIsNullWhereNothingApplies(t *testing.T) {
	got, _ := json.Marshal(Record{Key: "k", Outcome: Skipped})
	want := `{"key":"k","run_id":null,"attempt":null,"holder":null,"host":null,"pid":null,"token":null,"slot":null,"outcome":"skipped",` +
		`"reason":null,"exit_code":null,"started_at":null,"ended_at":null,"waited_s":0,"duration_s":null,"backend":null}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Record
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, Record{Key: "k", Outcome: Skipped}) {
		t.Errorf("read back %+v, %v", back, err)
	}
}

// Whole seconds and a fraction, each exact to the last bit, make a sum that is not.
func TestSecondsAreRoundedToMicroseconds(t *testing.T) {
	d := 3973746123 * time.Nanosecond
	got, err := json.Marshal(Record{Waited: d, Duration: &d})
	if err != nil || !strings.Contains(string(got), `"waited_s":3.973746,"duration_s":3.973746,`) {
		t.Errorf("%s, %v", got, err)
	}
	got, err = json.Marshal(State{ExpiresIn: &d})
	if err != nil || !strings.Contains(string(got), `"expires_in_s":3.973746,`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestStateJSON(t *testing.T) {
	waiters := 2
	got, _ := json.Marshal(State{Key: "k", State: Held, Holder: "h", Host: "o", PID: 7, Token: 9, Slot: &slot, AcquiredAt: &at,
		RenewedAt: &at, ExpiresAt: &at, ExpiresIn: &took, RunID: "r", Attempt: 4, Reason: "minimum hold", Waiters: &waiters})
	want := `{"key":"k","state":"held","holder":"h","host":"o","pid":7,"token":9,"slot":0,` +
		`"acquired_at":"2026-11-30T11:02:03.456789Z","renewed_at":"2026-11-30T11:02:03.456789Z","expires_at":"2026-11-30T11:02:03.456789Z",` +
		`"expires_in_s":1.5,"run_id":"r","reason":"minimum hold","waiters":2}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, _ = json.Marshal(State{Key: "k", State: Free})
	if n := strings.Count(string(got), ":null"); n != 12 {
		t.Errorf("%s has %d nulls, want 12", got, n)
	}
}
