package detector_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
)

// After the rules lower a threshold's count, events that come late still count by their own times.
func TestLateEventAfterLowerThreshold(t *testing.T) {
	ofCount := func(count string) *detector.RuleSet {
		return ruleSet(t, "\n- {name: sick, events: [oomkill], condition: Sick, reason: R, message: m, threshold: {count: "+count+", within: 1h}, clearAfter: 1h}\n")
	}
	pending := func() *detector.Engine {
		e := detector.NewEngine(ofCount("5"))
		for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute} {
			e.Observe(oom(d, "/a"), at(d))
		}
		return e
	}
	replaced := pending()
	replaced.Replace(ofCount("2"), at(5*time.Minute))
	for name, e := range map[string]*detector.Engine{
		"replaced": replaced,
		"restored": restarted(t, pending(), ofCount("2"), 5*time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			want(t, e.Observe(oom(90*time.Second, "/a"), at(6*time.Minute)), "sick  firing", "Sick=True R")
		})
	}
}
