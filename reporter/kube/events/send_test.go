package events

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/pods"
)

// listedAt knows no pod, but reports that all pods until a time are known.
type listedAt time.Time

func (listedAt) Pod(string) (pods.Pod, bool) { return pods.Pod{}, false }
func (l listedAt) Known(at time.Time) bool   { return !time.Time(l).Before(at) }

// lookingUp returns a sink and a series of a pod that it looks up.
func lookingUp(from PodSource) (*Sink, *series) {
	k := &Sink{cfg: Config{Pods: from}.withDefaults(), table: newTable()}
	k.table.rules["oom-kill"] = &RuleStats{}
	return k, &series{Rule: "oom-kill", Pod: "shop-1", Count: 1}
}

// A pod is given up soon once all pods are known from the time of the look-up, and later if the
// known pods are older.
func TestUnknownPodsAreGivenUp(t *testing.T) {
	asked := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		listed time.Time
		out    outage
		within time.Duration
	}{
		"the list is of now":            {asked, outage{}, 5 * time.Second},
		"the list is of before":         {asked.Add(-time.Second), outage{}, time.Minute},
		"after an outage that is over":  {asked, outage{ended: asked.Add(-time.Hour)}, 5 * time.Second},
		"the outage ends while waiting": {asked.Add(time.Hour), outage{ended: asked.Add(3 * time.Second)}, 8 * time.Second},
	} {
		k, s := lookingUp(listedAt(c.listed))
		k.out = c.out
		for _, after := range []time.Duration{0, c.within - time.Millisecond} {
			if k.locate(s, asked.Add(after)); s.Astray != "" {
				t.Errorf("%s: given up after %s: %s", name, after, s.Astray)
			}
		}
		if k.locate(s, asked.Add(c.within)); s.Astray != AstrayPod {
			t.Errorf("%s: not given up after %s: %q", name, c.within, s.Astray)
		}
	}
}

// No pod is given up in an outage, in which the list of pods is out of date, too.
func TestOutageGivesUpNoPod(t *testing.T) {
	began := time.Unix(1000, 0)
	ended := began.Add(11 * time.Minute)
	for name, c := range map[string]struct {
		pods  PodSource
		found bool
	}{
		"a pod that becomes known": {known{}, true},
		"a pod that stays unknown": {listedAt(ended), false},
	} {
		k, s := lookingUp(listedAt(began))
		k.out.failed(began, 0)
		for _, after := range []time.Duration{0, 10 * time.Minute} {
			if k.locate(s, began.Add(after)); s.Astray != "" {
				t.Errorf("%s: given up after %s of the outage: %s", name, after, s.Astray)
			}
		}
		k.out.over(ended)
		k.cfg.Pods = c.pods
		if found := k.locate(s, ended); found != c.found || s.Astray != "" {
			t.Errorf("%s: after the outage found %v, given up %q", name, found, s.Astray)
		}
		if k.locate(s, ended.Add(k.cfg.PodWait)); (s.Astray == "") != c.found {
			t.Errorf("%s: given up %q", name, s.Astray)
		}
	}
}
