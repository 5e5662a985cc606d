package detector_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// The condition of a node service is Unknown until its own source reports.
func TestEachServiceIsASourceOfItsOwn(t *testing.T) {
	const (
		waiting = "Unknown SourceNotStarted: waiting for "
		healthy = "False Well: all is well"
		clear   = ", condition: Sick, reason: R, message: m, latched: true}\n"
	)
	of := func(when string) string { return "\n- {name: r, events: [probe], when: '" + when + "'" + clear }
	kubelet := `event.probe == "service" && event.target == "kubelet"`
	up := func(stem string) *event.Event { return source(stem, true) }
	gone := &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "service/kubelet", Gone: true}}
	for _, c := range []struct {
		name, rules string
		reported    []*event.Event
		want        string
	}{
		{"nothing reported", of(kubelet), nil, waiting + "service/kubelet"},
		{"pods' probes are seen", of(kubelet), []*event.Event{up("probe"), up("service/dns")}, waiting + "service/kubelet"},
		{"its own", of(kubelet), []*event.Event{up("service/kubelet"), down("probe", "no kubelet"), down("service/dns", "gone")}, healthy},
		{"its own is down", of(kubelet), []*event.Event{up("probe"), down("service/kubelet", "no socket")}, "Unknown SourceUnavailable: service/kubelet: no socket"},
		{"its own is gone", of(kubelet), []*event.Event{down("service/kubelet", "no socket"), gone}, waiting + "service/kubelet"},
		{"two", of(`event.probe == "service" && event.target in ["kubelet", "dns"]`), []*event.Event{up("service/kubelet"), down("service/dns", "gone")},
			"Unknown SourceUnavailable: service/dns: gone"},
		{"any service", of(`event.probe == "service"`), []*event.Event{up("probe")}, healthy},
		{"all but one", of(`event.probe == "service" && event.target != "kubelet"`), []*event.Event{up("probe")}, healthy},
		{"pods too", of(`event.target == "kubelet"`), []*event.Event{up("probe")}, healthy},
		{"a pod", of(`event.probe == "liveness" && event.target == "shop/web app"`), []*event.Event{up("probe")}, healthy},
	} {
		e := detector.NewEngine(ruleSet(t, c.rules))
		for i, ev := range c.reported {
			e.Observe(ev, at(time.Duration(i)*time.Second))
		}
		if got := conditionOf(e); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
