package testenv_test

import (
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestCases(t *testing.T) {
	short := 1
	if testing.Short() {
		short = 10
	}
	for text, want := range map[string]int{"": 100 / short, "10": 1000 / short, "0.5": 50 / short, "0.000001": 1} {
		t.Setenv(testenv.CasesEnv, text)
		if got := testenv.Cases(t, 100); got != want {
			t.Errorf("factor %q: %d cases, want %d", text, got, want)
		}
	}
}
