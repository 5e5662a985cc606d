package events

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/pods"
)

// listedAt knows no pod, but reports that all pods until a time are known.
type listedAt time.Time

func (listedAt) Pod(string) (pods.Pod, bool) { return pods.Pod{}, false }
func (l listedAt) Known(at time.Time) bool   { return !time.Time(l).Before(at) }

// A pod is given up soon once all pods are known from the time of the look-up, and later if the
// known pods are older.
func TestUnknownPodsAreGivenUp(t *testing.T) {
	asked := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		listed time.Time
		within time.Duration
	}{
		"the list is of now":    {asked, 5 * time.Second},
		"the list is of before": {asked.Add(-time.Second), time.Minute},
	} {
		k := &Sink{cfg: Config{Pods: listedAt(c.listed)}.withDefaults()}
		k.table = newTable()
		k.table.rules["oom-kill"] = &rule{}
		s := &series{Rule: "oom-kill", Pod: "u", Count: 1}
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
