package detector_test

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/detector"
)

// Files that are left out give the selected ones the conditions that they set, and are no causes.
// A log rule does not stand back for a probe whose rules are left out.
func TestSelection(t *testing.T) {
	file := func(text string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("apiVersion: rules.kernosis.io/v1\n" + text)}
	}
	shipped := fstest.MapFS{
		"probe.yaml": file(`
conditions:
  Sick: {healthyReason: Well, healthyMessage: m}
  Ill: {healthyReason: Well, healthyMessage: m}
rules:
- {name: probe, events: [diskio], groupBy: [device.name], condition: Sick, reason: R, message: m, clearAfter: 1m}
- {name: ill, events: [diskio], condition: Ill, reason: R, message: m, clearAfter: 1m}
`),
		"oom.yaml": file("rules: [{name: oom, events: [oomkill], reason: R, message: m}]\n"),
		"log.yaml": file(`
rules:
- {name: cause, events: [log], pattern: '(?P<disk>\w+) bad', groupBy: [match.disk], reason: R, message: m}
- {name: both, events: [log], pattern: '(?P<part>\w+) of (?P<disk>\w+)', groupBy: [match.part, match.disk],
   dependsOn: [probe, cause], equal: {match.part: device.name, match.disk: match.disk}, reason: R, message: m}
- {name: fallback, events: [log], pattern: '(?P<disk>\w+) worst', groupBy: [match.disk], dependsOn: [probe], equal: {match.disk: device.name},
   fallbackFor: [diskio, oomkill], condition: Sick, reason: R, message: m, clearAfter: 1m}
`),
	}
	load := func(own string, files ...string) (*detector.RuleSet, error) {
		layers := []fs.FS{detector.Selection{FS: shipped, Selected: func(name string) bool { return slices.Contains(files, name) }}}
		if own != "" {
			layers = append(layers, layer(own))
		}
		return detector.Load(layers...)
	}
	set, err := load("", "log.yaml", "oom.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"both", "cause", "fallback", "oom"}, set.Names()); diff != "" {
		t.Errorf("rules (-want +have):\n%s", diff)
	}
	if c := set.Conditions(); len(c) != 1 || c[0].Type != "Sick" {
		t.Errorf("conditions %+v, want only the one that is set", c)
	}
	both, _ := set.Rule("both")
	fallback, _ := set.Rule("fallback")
	if !slices.Equal(both.DependsOn, []string{"cause"}) || len(fallback.DependsOn)+len(fallback.Equal) > 0 || !slices.Equal(fallback.FallbackFor, []string{"oomkill"}) {
		t.Errorf("%+v\n%+v", both, fallback)
	}
	// The operator's rules over a selection.
	own := "rules: [{name: probe, events: [diskio], groupBy: [device.name], reason: R, message: m}, {name: own, events: [oomkill], reason: R, message: m, dependsOn: [ill]}]\n"
	if set, err = load(own, "log.yaml"); err != nil {
		t.Fatal(err)
	}
	r, _ := set.Rule("own")
	both, _ = set.Rule("both")
	if len(r.DependsOn) > 0 || !slices.Equal(both.DependsOn, []string{"probe", "cause"}) {
		t.Errorf("%+v\n%+v", r, both)
	}
	if _, err = load("rules: [{name: own, events: [oomkill], reason: R, message: m, dependsOn: [nothing]}]\n", "log.yaml"); err == nil {
		t.Error("a rule depends on one that does not exist")
	}
}
