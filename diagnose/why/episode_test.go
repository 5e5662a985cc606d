package why_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/why"
)

// The verdict on an earlier episode of a problem is not the cause of today's.
func TestVerdictOfAnEarlierEpisode(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 10, minute, 0, 0, time.UTC) }
	a := why.Build(why.Input{
		Subject: why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1", UID: "u"}, Now: at(50), Since: time.Hour,
		Problems: []why.Problem{{From: why.FromJournal, Rule: "r", Reason: "TaskHung", Message: "TaskHung: blocked", Pod: "u", Lasts: true, First: at(40), Last: at(49)}},
		Diagnoses: []why.Diagnosis{
			{Name: "a", Rule: "r", PodUID: "u", Started: at(0), Ended: at(1), Verdict: "DiskStalled"},
			{Name: "b", Rule: "r", PodUID: "u", Started: at(41), Ended: at(42), Excluded: []why.Finding{{Reason: "NoDiskStalled"}}},
		},
	})
	if len(a.Causes) != 1 || a.Causes[0].Reason != "TaskHung" || len(a.Not) != 1 {
		t.Errorf("%+v, not %v", a.Causes, a.Not)
	}
}
