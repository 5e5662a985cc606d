package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func windowOf(t *testing.T, schedule, zone string, d time.Duration) *window {
	t.Helper()
	w, err := newWindow(&v1alpha1.MaintenanceWindow{Schedule: schedule, TimeZone: zone, Duration: metav1.Duration{Duration: d}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A daily window in Berlin around the days on which its clocks change.
func TestWindowWhenClocksChange(t *testing.T) {
	w := windowOf(t, "30 2 * * *", "Europe/Berlin", time.Hour)
	for at, want := range map[string]bool{
		// 29 March 2026: 02:00 becomes 03:00, so 02:30 does not exist.
		"2026-03-28T02:30:00+01:00": true,
		"2026-03-29T01:59:59+01:00": false,
		"2026-03-29T03:00:00+02:00": false,
		"2026-03-29T03:29:59+02:00": false,
		"2026-03-30T02:29:59+02:00": false,
		"2026-03-30T02:30:00+02:00": true,
		// 25 October: 03:00 becomes 02:00 again, so 02:30 exists twice.
		"2026-10-25T02:29:59+02:00": false,
		"2026-10-25T02:30:00+02:00": true,
		"2026-10-25T02:15:00+01:00": true,
		"2026-10-25T03:15:00+01:00": true, // it also began at the second 02:30
		"2026-10-25T03:30:00+01:00": false,
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if open, _ := w.open(now); open != want {
			t.Errorf("%s: %v", at, open)
		}
	}
}

// Compared with a check of each minute: a window is open if it began within its duration before. If
// it is closed, it opens exactly when it says.
func TestWindowAgainstEachMinute(t *testing.T) {
	w := windowOf(t, "*/20 1,13 * 2,3 1-5", "America/New_York", 50*time.Minute)
	begins := func(at time.Time) bool {
		at = at.In(w.zone)
		return at.Second() == 0 && at.Minute()%20 == 0 && (at.Hour() == 1 || at.Hour() == 13) &&
			(at.Month() == time.February || at.Month() == time.March) && at.Weekday() >= time.Monday && at.Weekday() <= time.Friday
	}
	openAt := func(at time.Time) bool {
		for back := range 50 {
			if begins(at.Add(-time.Duration(back) * time.Minute)) {
				return true
			}
		}
		return false
	}
	opened := 0
	for range 2000 {
		now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rand.N(70*24*60)) * time.Minute)
		open, next := w.open(now)
		if open != openAt(now) {
			t.Fatalf("%s: %v", now, open)
		}
		if open {
			opened++
			continue
		}
		if opened%7 == 0 && (!openAt(next) || openAt(next.Add(-time.Minute))) {
			t.Fatalf("%s: next %s", now, next)
		}
	}
	if opened == 0 {
		t.Error("never open")
	}
}

func TestWindowIsRefused(t *testing.T) {
	for _, w := range []v1alpha1.MaintenanceWindow{
		{Schedule: "@daily"}, {Schedule: "* * * *"}, {Schedule: "* * * * * *"}, {Schedule: "60 * * * *"}, {Schedule: "TZ=UTC"},
		{Schedule: "* * * * *", TimeZone: "Local"}, {Schedule: "* * * * *", TimeZone: "../UTC"}, {Schedule: "* * * * *", Duration: metav1.Duration{Duration: -1}},
	} {
		if w.Duration.Duration == 0 {
			w.Duration.Duration = time.Hour
		}
		if _, err := newWindow(&w); err == nil {
			t.Errorf("%+v is taken", w)
		}
	}
}
