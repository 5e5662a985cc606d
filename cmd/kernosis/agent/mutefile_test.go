package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// When a clock that was behind at boot is corrected, a mute of an earlier boot ends by the wall clock. A
// mute of this boot keeps its duration.
func TestMutesWhenTheClockIsCorrected(t *testing.T) {
	const behind = 100 * time.Hour
	for _, tt := range []struct {
		name    string
		written time.Time
		lasts   time.Duration
	}{
		{"earlier boot", bootedAt().Add(-time.Hour), time.Hour},
		{"before the clock was behind", time.Now().Add(time.Hour), time.Hour},
		{"this boot", time.Now(), behind + time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := restored(t, t.TempDir())
			m := problem.Mute{Rule: "oom-kill", Until: time.Now().Add(time.Hour).UTC().Truncate(time.Second), Reason: "known"}
			path := filepath.Join(t.TempDir(), MutesFile)
			text := "apiVersion: " + detector.APIVersion + "\nmutes:\n- {rule: oom-kill, until: " + m.Until.Format(time.RFC3339) + ", reason: known}\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, tt.written, tt.written); err != nil {
				t.Fatal(err)
			}
			a.engine.SetMutes([]problem.Mute{m}, event.Moment{Wall: time.Now().Add(-behind), Boot: hostfs.BootTime()})
			f := &muteFile{path: path, a: a, rules: a.engine.Rules(), booted: bootedAt().Add(-behind)}
			f.read()
			lasts := func(want time.Duration) {
				t.Helper()
				end, ok := a.engine.NextDeadline()
				if left := end.Boot - hostfs.BootTime(); !ok || (left-want).Abs() > time.Minute {
					t.Errorf("the mute lasts %v, want %v", left, want)
				}
			}
			lasts(behind + time.Hour)
			f.clockIs(bootedAt().Add(-behind))
			lasts(behind + time.Hour)
			f.clockIs(bootedAt())
			lasts(tt.lasts)
		})
	}
}

// A mute of this boot that had ended by a clock that was ahead begins when the clock is corrected.
func TestMuteReadWhileTheClockIsAhead(t *testing.T) {
	a, _ := restored(t, t.TempDir())
	past, future := time.Now().Add(-time.Hour).Format(time.RFC3339), time.Now().Add(time.Hour).Format(time.RFC3339)
	path := filepath.Join(t.TempDir(), MutesFile)
	text := "apiVersion: " + detector.APIVersion + "\nmutes:\n- {rule: oom-kill, until: " + past + ", reason: ended}\n" +
		"- {rule: task-hung, until: " + future + ", reason: in force}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &muteFile{path: path, a: a, rules: a.engine.Rules(), booted: bootedAt()}
	f.read()
	inForce := func(want ...string) {
		t.Helper()
		var rules []string
		for _, m := range a.engine.Mutes() {
			rules = append(rules, m.Rule)
		}
		if !slices.Equal(rules, want) {
			t.Errorf("mutes %q are in force, want %q", rules, want)
		}
	}
	inForce("task-hung")
	if len(f.ended) != 1 {
		t.Fatalf("ended: %+v, want the mute of oom-kill", f.ended)
	}
	f.booted = bootedAt().Add(2 * time.Hour)
	f.clockIs(bootedAt())
	inForce("task-hung") // by the corrected clock, too, it has ended
	f.booted = bootedAt().Add(2 * time.Hour)
	f.ended[0].Until = time.Now().Add(time.Hour) // as if the clock had been ahead by two hours
	f.clockIs(bootedAt())
	inForce("oom-kill", "task-hung")
	if len(f.ended) != 0 {
		t.Errorf("ended: %+v", f.ended)
	}
}
