package detector_test

import (
	"testing"
	"testing/fstest"

	"github.com/kernosis/kernosis/detector"
)

func layer(text string) fstest.MapFS {
	return fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte("apiVersion: rules.kernosis.io/v1\n" + text)}}
}

func TestLayers(t *testing.T) {
	set, err := detector.Load(detector.Shipped(), layer(`
conditions:
  KernelDeadlock: {healthyReason: KernelHasNoDeadlock, healthyMessage: changed}
rules:
- name: kernel-deadlock
  events: [hungtask]
  groupBy: [task.id]
  condition: KernelDeadlock
  reason: TaskHung
  message: changed
  for: 5s
  clearWhen: event.kind == "hungtask.resumed"
- {name: own, events: [hungtask], reason: Own, message: own, dependsOn: [disk-unhealthy]}
`))
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	if have, want := len(set.Rules()), len(shipped.Rules())+1; have != want {
		t.Errorf("%d rules, want %d: one is replaced, one is new", have, want)
	}
	r, _ := set.Rule("kernel-deadlock")
	if r.Message != "changed" || r.Fault != "kernel-deadlock" || r.File != "r.yaml" {
		t.Errorf("have %+v, want the upper layer's rule, whole", r)
	}
	for _, c := range set.Conditions() {
		if c.Type == "KernelDeadlock" && c.HealthyMessage != "changed" {
			t.Errorf("condition %+v is not the upper layer's", c)
		}
	}
}

// TestDefaults checks the defaults of a rule that sets only the mandatory keys.
func TestDefaults(t *testing.T) {
	set, err := detector.Load(layer("rules:\n- {name: told, events: [oomkill], reason: R, message: m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, ok := set.Rule("told")
	if !ok || r.Fault != "told" || r.Severity != "warning" || r.ClearAfter != detector.DefaultClearAfter ||
		r.MaxGroups != detector.DefaultMaxGroups || !r.Temporary() || r.Line != 3 {
		t.Errorf("have %+v", r)
	}
	if _, ok := set.Rule("absent"); ok {
		t.Error("there is a rule that isn't there")
	}
}
