package wire

import (
	"errors"
	"strings"
	"testing"
)

// The exchange of RFC 7677, section 3.
func TestScramAsInItsRFC(t *testing.T) {
	s, err := newScram(ScramSHA256, "user", "pencil")
	if err != nil {
		t.Fatal(err)
	}
	s.nonce = "rOprNGfwEbeRWgbNEkqO"
	if got := string(s.first()); got != "n,,n=user,r=rOprNGfwEbeRWgbNEkqO" {
		t.Fatalf("first message %q", got)
	}
	final, err := s.final([]byte("r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"))
	want := "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	if err != nil || string(final) != want {
		t.Fatalf("final message %q, %v", final, err)
	}
	if err := s.verify([]byte("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")); err != nil {
		t.Errorf("the server's proof: %v", err)
	}
	for _, bad := range []string{"v=6srriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G=", "v=", "", "e=other-error"} {
		if err := s.verify([]byte(bad)); !errors.Is(err, ErrProof) {
			t.Errorf("the proof %q: %v", bad, err)
		}
	}
}

func TestScramRefusesAFalseServer(t *testing.T) {
	s, err := newScram(ScramSHA512, "u=,ser", "p")
	if err != nil {
		t.Fatal(err)
	}
	if first := string(s.first()); !strings.HasPrefix(first, "n,,n=u=3D=2Cser,r=") {
		t.Errorf("first message %q", first)
	}
	for name, server := range map[string]string{
		"another nonce":         "r=x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
		"our nonce and no more": "r=" + s.nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
		"no salt":               "r=" + s.nonce + "x,i=4096",
		"salt that is none":     "r=" + s.nonce + "x,s=!,i=4096",
		"work without end":      "r=" + s.nonce + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000",
		"no work":               "r=" + s.nonce + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
		"an error":              "e=unknown-user",
		"nothing":               "",
	} {
		if final, err := s.final([]byte(server)); err == nil {
			t.Errorf("%s: answered %q", name, final)
		}
	}
}
