package why_test

import (
	"fmt"
	"slices"
	"strings"
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

// A verdict is no longer the cause once a newer Diagnosis of the same problem has refuted a check that
// led to it, also while that one still runs.
func TestVerdictThatANewerDiagnosisContradicts(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 10, minute, 0, 0, time.UTC) }
	refuted := func(operation string) []why.Finding {
		return []why.Finding{{Operation: operation, Reason: "NoDiskStalled"}}
	}
	for name, c := range map[string]struct {
		newer why.Diagnosis
		cause string
	}{
		"refuted":                  {why.Diagnosis{Ended: at(42), Excluded: refuted("check-disk-stalled")}, "TaskHung"},
		"refuted, and still runs":  {why.Diagnosis{Excluded: refuted("check-disk-stalled")}, "TaskHung"},
		"found another cause":      {why.Diagnosis{Ended: at(42), Verdict: "LockHeld", Excluded: refuted("check-disk-stalled")}, "LockHeld"},
		"runs":                     {why.Diagnosis{}, "DiskStalled"},
		"refuted something else":   {why.Diagnosis{Ended: at(42), Excluded: refuted("check-nfs-hang")}, "DiskStalled"},
		"is about another problem": {why.Diagnosis{Ended: at(42), Subject: "other", Excluded: refuted("check-disk-stalled")}, "DiskStalled"},
	} {
		for _, from := range []string{why.FromJournal, why.FromAPI} {
			t.Run(name+", "+from, func(t *testing.T) {
				p := why.Problem{From: from, Rule: "r", Reason: "TaskHung", Message: "TaskHung: blocked", Pod: "u", Lasts: true, First: at(30), Last: at(49)}
				if from == why.FromAPI {
					p.Rule = ""
				}
				c.newer.Name, c.newer.Rule, c.newer.Reason, c.newer.PodUID, c.newer.Started = "b", "r", "TaskHung", "u", at(41)
				a := why.Build(why.Input{
					Subject: why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1", UID: "u"}, Now: at(50), Since: time.Hour,
					Problems: []why.Problem{p},
					Diagnoses: []why.Diagnosis{c.newer, {
						Name: "a", Rule: "r", Reason: "TaskHung", PodUID: "u", Started: at(31), Ended: at(32), Verdict: "DiskStalled", Path: []string{"check-disk-stalled", "collect-log"},
					}},
				})
				if len(a.Causes) != 1 || a.Causes[0].Reason != c.cause {
					t.Errorf("%+v, want %s", a.Causes, c.cause)
				}
			})
		}
	}
}

// Two containers of a pod have the same problem: the verdict on one is not the cause of the other's.
func TestVerdictOnAnotherContainer(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	const app, proxy = "8a1f5c0de77b", "99b7ec4c69b7"
	for name, c := range map[string]struct {
		diagnosed, asked string
		causes           []string
	}{
		"by name":                    {"app", "", []string{"LimitTooLow", "OOMKilling"}},
		"by id":                      {app + "00ff", "", []string{"LimitTooLow", "OOMKilling"}},
		"the Diagnosis names none":   {"", "", []string{"LimitTooLow"}},
		"asked about that container": {"app", "app", []string{"LimitTooLow"}},
		"asked about the other":      {"app", "proxy", []string{"OOMKilling"}},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", containers known: ", known), func(t *testing.T) {
				in := why.Input{
					Subject: why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1", UID: "u", Container: c.asked}, Now: at.Add(time.Minute), Since: time.Hour,
					Diagnoses: []why.Diagnosis{{Name: "d", Rule: "oom-kill", PodUID: "u", Container: c.diagnosed, Started: at, Ended: at, Verdict: "LimitTooLow"}},
				}
				for container, id := range map[string]string{"app": app, "proxy": proxy} {
					p := why.Problem{From: why.FromJournal, Rule: "oom-kill", Reason: "OOMKilling", Message: container + " killed", Pod: "u", Lasts: true, First: at, Last: at}
					p.Container = container
					if strings.HasPrefix(c.diagnosed, app) {
						p.Container = id
					}
					if known {
						in.Containers = append(in.Containers, why.Container{Name: container, ID: id + "00ff", Running: true, Ready: true})
					}
					in.Problems = append(in.Problems, p)
				}
				var causes []string
				for _, cause := range why.Build(in).Causes {
					causes = append(causes, cause.Reason)
				}
				if !slices.Equal(causes, c.causes) {
					t.Errorf("%v, want %v", causes, c.causes)
				}
			})
		}
	}
}
