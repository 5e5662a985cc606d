package why_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/why"
)

// An Event on the Node names its pod only in the text, where a longer name is another pod's.
func TestPodNamedInAText(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for text, is := range map[string]bool{
		"worker[4122] in pod shop/web-1 container app killed": true,
		"killed shop/web-1":                         true,
		"killed a process of shop/web-1.":           true,
		"shop/web-10, then shop/web-1: killed":      true,
		"worker[4122] in pod shop/web-10 killed":    false,
		"worker[4122] in pod shop/web-1-a killed":   false,
		"worker[4122] in pod shop/web-1.a killed":   false,
		"worker[4122] in pod workshop/web-1 killed": false,
	} {
		a := why.Build(why.Input{
			Subject: why.Subject{Kind: why.KindNode, Name: "n7"}, Now: at.Add(time.Minute), Since: time.Hour,
			Problems: []why.Problem{{From: why.FromAPI, Reason: "OOMKilling", Message: text, First: at, Last: at}},
			Diagnoses: []why.Diagnosis{{
				Name: "d", Rule: "oom-kill", Reason: "OOMKilling", PodUID: "u", Pod: "shop/web-1", Started: at, Ended: at, Verdict: "LimitTooLow",
			}},
		})
		if tied := len(a.Causes) == 1; tied != is {
			t.Errorf("%q: of that pod: %v, want %v", text, tied, is)
		}
	}
}
