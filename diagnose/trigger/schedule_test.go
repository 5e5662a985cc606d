package trigger

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The latest missed time is the one that iterating over all of them would give, also in zones with
// daylight saving time.
func TestLatestIsTheLastOfAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{
		"* * * * *", "*/5 * * * *", "0 2 * * *", "30 2 * * *", "0 0 * * 1-5", "0 0 1 * *", "15 10-12,22 * * *", "0 0 29 2 *",
		"CRON_TZ=America/New_York 30 1 * * *", "CRON_TZ=America/New_York 30 2 * * *", "CRON_TZ=America/Sao_Paulo 0 0 * * *",
		"TZ=Australia/Lord_Howe */10 1-2 * * *", "@hourly", "@weekly", "@yearly", "@every 7m", "@every 36h",
	} {
		s, err := parseSchedule(text)
		if err != nil {
			t.Fatal(text, err)
		}
		for range 20 {
			base := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rnd.Int64N(int64(9 * 365 * 24 * time.Hour))))
			now := base.Add(time.Duration(rnd.Int64N(int64(40 * 24 * time.Hour)))).Add(-time.Hour)
			var want time.Time
			from := base
			if s.every > 0 {
				from = base.Truncate(time.Second)
			}
			for at := s.times.Next(from); !at.IsZero() && !at.After(now); at = s.times.Next(at) {
				want = at
			}
			got, ok := s.latest(base, now)
			if ok != !want.IsZero() || ok && !got.Equal(want) {
				t.Fatalf("%s from %s to %s: %s %t, want %s", text, base, now, got, ok, want)
			}
			if next := s.next(base, now); !next.IsZero() && !next.After(now) {
				t.Fatalf("%s: next after %s is %s", text, now, next)
			}
		}
	}
}

// A century of missed seconds is computed at once.
func TestLatestAfterALongTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"@every 1s": now,
		"* * * * *": now,
		"0 2 * * *": time.Date(2025, 12, 31, 2, 0, 0, 0, time.UTC),
	} {
		s, err := parseSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := s.latest(now.AddDate(-100, 0, 0), now); !ok || !got.Equal(want) {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// A schedule without a zone uses that of now.
func TestZoneOfASchedule(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones on this machine:", err)
	}
	s, err := parseSchedule("0 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	base := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	got, ok := s.latest(base.Add(-time.Hour), base.Add(time.Hour).In(berlin))
	if !ok || !got.Equal(base) { // 02:00 in Berlin
		t.Error(got, ok)
	}
}

// The parser must neither panic nor loop forever.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"0 2 * * *", "TZ=UTC", "TZ=\t\t0", "CRON_TZ= ", "CRON_TZ=", "@every 5m", "@every -1h", "@reboot", "TZ=UTC @every 1h", "? ? ? ? ?", "*/99999999999 * * * *", "1-2-3 * * * *", "0 0 31 4 *", "TZ=Europe/Berlin 30 2 29 3 *"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 256 {
			return // the API's limit
		}
		s, err := parseSchedule(text)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		at, ok := s.latest(now.AddDate(0, -1, 0), now)
		if ok && at.After(now) {
			t.Errorf("%q: %s is to come", text, at)
		}
		s.denser(1000, time.Hour)
	})
}
