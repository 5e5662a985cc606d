package bpf

import (
	"testing"
)

// TestHarmlessSkips: a skipped run is a lost record only where no other program reports
// the same.
func TestHarmlessSkips(t *testing.T) {
	l, err := Open(sockfail(), testKernel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.AttachAll()
	skips, err := l.Skips()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range skips {
		seen[s.Program] = true
		want := map[string]bool{
			SockfailProgStateRaw: !l.serves(hookState, SockfailProgStateRaw),
			SockfailProgDropRaw:  true, SockfailProgIcmpRaw: true, SockfailProgResendRaw: true,
			SockfailProgErrorRaw: true, SockfailProgErrorFentry: true, SockfailProgErrorKp: true,
			SockfailProgReturn4Fexit: true, SockfailProgReturn4Kp: true, SockfailProgReturn6Fexit: true, SockfailProgReturn6Kp: true,
		}[s.Program]
		if s.Harmless != want {
			t.Errorf("%s: harmless %v, want %v", s.Program, s.Harmless, want)
		}
	}
	for _, p := range []string{SockfailProgStateRaw, SockfailProgResetRaw, canaryProgram} {
		if !seen[p] {
			t.Errorf("%s is not counted: %+v", p, skips)
		}
	}
}
