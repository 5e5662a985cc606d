package testenv

import (
	"testing"
	"time"
)

// Until polls ok until it returns true. If it doesn't within the time that [Within] returns, Until
// fails the test and reports what it waited for and how long. The deadline is recalculated at each
// poll after the time, so it moves on while the machine is busy.
func Until(tb testing.TB, what string, within time.Duration, ok func() bool) {
	tb.Helper()
	UntilShown(tb, what, within, func() (bool, string) { return ok(), "" })
}

// UntilShown is [Until] for a condition that also returns what it found. The failure shows the last
// value.
func UntilShown(tb testing.TB, what string, within time.Duration, ok func() (ok bool, shown string)) {
	tb.Helper()
	for start := time.Now(); ; {
		look := time.Now()
		is, shown := ok()
		if is {
			return
		}
		now := time.Now()
		if waited := now.Sub(start); waited >= within && waited >= Within(within) {
			if shown != "" {
				shown = "; last: " + shown
			}
			tb.Fatalf("waited %s for: %s%s", waited.Round(time.Millisecond), what, shown)
		}
		// A poll may query an API server or run kubectl and so slow down what it waits for. So
		// polls get less frequent over time.
		time.Sleep(min(max(now.Sub(look), now.Sub(start)/10, 5*time.Millisecond), 200*time.Millisecond))
	}
}
