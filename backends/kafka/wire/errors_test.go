package wire

import "testing"

// Whatever a broker answers, the line that people get says what to do about it.
func TestEachCodeHasARemedy(t *testing.T) {
	for code := range codeNames {
		if remedy, permanent := Advice(refused(PhaseProduce, "b1:9092", code, "")); remedy == "" || permanent && code.passing() {
			t.Errorf("%v: %q, permanent %v", code, remedy, permanent)
		}
	}
	if remedy, _ := Advice(Code(1000)); remedy == "" {
		t.Error("a code that nobody here knows has no remedy")
	}
}
