package detector_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// A generated rule is loaded unchanged, whatever keys it has.
func TestRuleFile(t *testing.T) {
	file := detector.RuleFile{
		Conditions: map[string]detector.ConditionSpec{"Sick": {HealthyReason: "Well", HealthyMessage: "all is: \"well\""}},
		Rules: []*detector.Rule{
			{
				Name: "stalled", Fault: "disk", Events: []event.Kind{event.DiskStalled}, When: "event.inFlight > 1", GroupBy: []string{"device.name"},
				Condition: "Sick", Reason: "Stalled", Message: "${device.name}: $${x}", Severity: problem.Critical,
				SeverityWhen: map[problem.Severity]string{problem.Info: "event.inFlight == 2"}, For: 90 * time.Second,
				ClearAfter: time.Hour, ClearWhen: `event.kind == "diskstall.resumed"`, DependsOn: []string{"told"},
				Equal: map[string]string{"device.name": "match.disk"}, MaxGroups: 7, Doc: "problems/DiskStalled",
			},
			{
				Name: "told", Fault: "told", Events: []event.Kind{event.Log}, GroupBy: []string{"match.disk"}, Condition: "Sick", Reason: "Told", Message: "m", Severity: problem.Warning,
				Threshold: detector.Threshold{Count: 2, Within: time.Minute, Distinct: "log.text"}, Latched: true, RateLimit: detector.RateLimit{Count: 20, Within: time.Hour}, MaxGroups: 1,
				Pattern: `(?P<disk>\w+): "stalls"`, Logs: []string{"kmsg"}, FallbackFor: []string{"diskstall"}, Lines: 3, AnchorEnd: true,
			},
			{
				Name: "over", Fault: "over", Events: []event.Kind{event.Log}, Reason: "Over", Message: "m", Severity: problem.Info, Pattern: "a", ClearPattern: "^b",
				ClearAfter: time.Minute, RateLimit: detector.RateLimit{Count: 1, Within: time.Second}, MaxGroups: 1,
			},
			{Name: "silent", Events: []event.Kind{event.Check}, When: `event.check == "backup"`, Reason: "Silent", Message: "m", Severity: problem.Info, AbsentFor: 24 * time.Hour},
		},
	}
	layer, err := file.Layer("made.yaml")
	if err != nil {
		t.Fatal(err)
	}
	silent := file.Rules[3] // with absentFor a rule file can't set these, only the loader
	silent.Fault, silent.MaxGroups = silent.Name, detector.DefaultMaxGroups
	set, err := detector.Load(layer)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file.Rules, set.Rules(), cmpopts.IgnoreUnexported(detector.Rule{}), cmpopts.IgnoreFields(detector.Rule{}, "File", "Line", "Layer")); diff != "" {
		t.Errorf("rules (-made +loaded):\n%s", diff)
	}
	sick := file.Conditions["Sick"]
	sick.Type = "Sick"
	if diff := cmp.Diff([]detector.ConditionSpec{sick}, set.Conditions()); diff != "" {
		t.Errorf("conditions (-made +loaded):\n%s", diff)
	}
	if layer, err = new(detector.RuleFile).Layer("none.yaml"); err != nil {
		t.Fatal(err)
	}
	if set, err = detector.Load(layer); err != nil || len(set.Rules()) != 0 {
		t.Errorf("a file without rules has %d: %v", len(set.Rules()), err)
	}
}
