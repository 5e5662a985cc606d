package ruletest_test

import (
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/ruletest"
)

// TestShippedRules runs the unit tests of the shipped rules, and checks that they
// cover for every rule that it fires, does not fire, clears and flaps.
func TestShippedRules(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	files, err := ruletest.ReadFiles(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	results := ruletest.Results{Strict: true}
	if err := results.Run(set, func(*detector.Rule) bool { return true }, files...); err != nil {
		t.Fatal(err)
	}
	if results.Failed() > 0 {
		var b strings.Builder
		if err := results.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		t.Error("\n" + b.String())
	}
}
