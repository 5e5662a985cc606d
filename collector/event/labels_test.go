package event

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/display"
)

func TestSafeLabels(t *testing.T) {
	most := map[string]string{}
	for i := range MaxPodLabels {
		most[fmt.Sprintf("l%02d", i)] = "v"
	}
	more := maps.Clone(most)
	more["l64"], more["l65"] = "v", "v"
	long := map[string]string{}
	for i := range 20 {
		long[fmt.Sprintf("%02d", i)+strings.Repeat("k", MaxLabelName-2)] = strings.Repeat("v", MaxLabelValue)
	}
	for name, c := range map[string]struct {
		in   map[string]string
		want int
	}{
		"none": {nil, 0}, "as many as there may be": {most, 64}, "more": {more, 64}, "long ones": {long, 10}, // of 380 bytes
		"unsafe": {map[string]string{"a": "b", "c\x1b": "d", "e": "f\n", "g": "\u202e", strings.Repeat("k", 318): "", "h": strings.Repeat("v", 64), "": "\xff"}, 1},
	} {
		have := SafeLabels(c.in)
		if len(have) != c.want {
			t.Errorf("%s: %d are left, want %d", name, len(have), c.want)
		}
		for k, v := range have {
			if c.in[k] != v || k != display.Safe(k, MaxLabelName) || v != display.Safe(v, MaxLabelValue) {
				t.Errorf("%s: %q=%q", name, k, v)
			}
		}
		for i := range len(have) {
			if _, ok := have[fmt.Sprintf("l%02d", i)]; name == "more" && !ok {
				t.Errorf("%s: not the first by name: %v", name, have)
			}
		}
	}
	labels := map[string]string{"app": "web", "team": "db"}
	if n := testing.AllocsPerRun(100, func() { labels = SafeLabels(labels) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
