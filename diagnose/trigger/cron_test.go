package trigger_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

func cronMatcher(tb testing.TB, schedule string, created, last time.Time) *trigger.Matcher {
	tb.Helper()
	t := newTrigger(tb, "nightly", `{operationSet: disk-health, rateLimit: {count: 1000, within: 1h}, targetSelector: {maxTargets: 50, nodeSelector: {matchLabels: {pool: storage}}}, sourceTemplate: {cronTemplate: {schedule: "`+schedule+`"}}}`)
	t.CreationTimestamp = metav1.NewTime(created)
	if !last.IsZero() {
		t.Status.LastScheduleTime = &metav1.Time{Time: last}
	}
	return compile(tb, t)
}

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

func TestCron(t *testing.T) {
	m := cronMatcher(t, "0 * * * *", at(0, 30), time.Time{})
	e := engineOf(t, m)
	none(t, e.Tick(trigger.Known{}, at(0, 59)))
	if ran := e.State().Triggers[0].Ran; !ran.IsZero() {
		t.Error(ran)
	}
	if next, ok := e.NextTick(at(0, 59)); !ok || !next.Equal(at(1, 0)) {
		t.Error(next, ok)
	}
	first := only(t, e.Tick(trigger.Known{}, at(1, 0)))
	if first.Spec.TargetSelector == nil || first.Spec.NodeName != "" || first.Annotations[trigger.AnnotationEpisode] != "2026-03-01T01:00:00Z" ||
		first.Annotations[trigger.AnnotationTriggeredBy] != "schedule 0 * * * * at 2026-03-01T01:00:00Z" {
		t.Errorf("%+v", first)
	}
	if ran := e.State().Triggers[0].Ran; !ran.Equal(at(1, 0)) {
		t.Error(ran)
	}
	none(t, e.Tick(trigger.Known{}, at(1, 0)))
	none(t, e.Tick(trigger.Known{}, at(1, 59)))
	// Down for hours: only the latest missed time is made up for.
	if dx := only(t, e.Tick(trigger.Known{}, at(9, 45))); dx.Annotations[trigger.AnnotationEpisode] != "2026-03-01T09:00:00Z" {
		t.Error(dx.Annotations)
	}
	none(t, e.Tick(trigger.Known{}, at(9, 46)))
	// With its state, and with only the Trigger's status.
	none(t, restarted(t, e, []*trigger.Matcher{m}).Tick(trigger.Known{}, at(9, 50)))
	none(t, engineOf(t, cronMatcher(t, "0 * * * *", at(0, 30), at(9, 0))).Tick(trigger.Known{}, at(9, 50)))
	// With neither, the latest is wanted again, under the same name.
	again := only(t, engineOf(t, m).Tick(trigger.Known{}, at(1, 20)))
	if again.Name != first.Name {
		t.Error(again.Name, first.Name)
	}
}

// A changed schedule begins at that moment: the new one has missed nothing.
func TestScheduleThatIsChanged(t *testing.T) {
	e := engineOf(t, cronMatcher(t, "0 2 * * *", at(0, 0), time.Time{}))
	only(t, e.Tick(trigger.Known{}, at(2, 0)))
	if err := e.Install([]*trigger.Matcher{cronMatcher(t, "*/10 * * * *", at(0, 0), at(2, 0))}); err != nil {
		t.Fatal(err)
	}
	none(t, e.Tick(trigger.Known{}, at(14, 5)))
	only(t, e.Tick(trigger.Known{}, at(14, 10)))
}

// Another controller has led meanwhile.
func TestScheduleThatAnotherSawTo(t *testing.T) {
	e := engineOf(t, cronMatcher(t, "0 * * * *", at(0, 30), time.Time{}))
	only(t, e.Tick(trigger.Known{}, at(1, 0)))
	if err := e.Install([]*trigger.Matcher{cronMatcher(t, "0 * * * *", at(0, 30), at(5, 0))}); err != nil {
		t.Fatal(err)
	}
	none(t, e.Tick(trigger.Known{}, at(5, 59)))
	only(t, e.Tick(trigger.Known{}, at(6, 0)))
}

// A clock that was a year ahead does not stop a schedule for a year.
func TestScheduleOfAClockThatIsSetBack(t *testing.T) {
	e := engineOf(t, cronMatcher(t, "0 * * * *", at(0, 30), time.Time{}))
	only(t, e.Tick(trigger.Known{}, at(1, 0).AddDate(1, 0, 0)))
	none(t, e.Tick(trigger.Known{}, at(1, 30)))
	only(t, e.Tick(trigger.Known{}, at(2, 0)))
}

// Neither the Trigger's default cooldown nor the time before its creation counts.
func TestEvery(t *testing.T) {
	tr := newTrigger(t, "often", `{operationSet: s, nodeName: n7, sourceTemplate: {cronTemplate: {schedule: "@every 5m"}}}`)
	e := engineOf(t, compile(t, tr))
	none(t, e.Tick(trigger.Known{}, at(0, 0)))
	for i := 5; i <= 30; i += 5 {
		if next, ok := e.NextTick(at(0, i-1)); !ok || !next.Equal(at(0, i)) {
			t.Error(next, ok)
		}
		dx := only(t, e.Tick(trigger.Known{}, at(0, i)))
		if dx.Spec.NodeName != "n7" || dx.Spec.Parameters["node"] != "n7" {
			t.Errorf("%+v", dx.Spec)
		}
	}
	if _, ok := engineWith(t, anyOOM).NextTick(at(0, 0)); ok {
		t.Error("a time without a schedule")
	}
	if next, ok := e.NextTick(at(1, 0)); !ok || !next.Equal(at(1, 0)) {
		t.Error("what is due is not wanted at once", next, ok)
	}
}
