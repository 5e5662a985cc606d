package ruletest_test

import (
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/detector/ruletest"
)

// TestShippedRules runs the unit tests of the shipped rules, and makes sure
// that they show of every rule: it fires, it doesn't, it clears, it flaps.
func TestShippedRules(t *testing.T) {
	set, err := detector.Load(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ruletest.ReadFiles(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	report, err := ruletest.Run(set, files...)
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed() > 0 {
		t.Error("\n" + report.String())
	}
	for _, r := range set.Rules() {
		if c := report.Coverage[r.Name]; !c.Shown(r) {
			t.Errorf("rule %s is not shown in full by its tests: %+v", r.Name, c)
		}
	}
}
