package selfcheck

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// The page has the capabilities that are dropped, with what keeps each, and calls none of those that
// are always dropped a need.
func TestUnneededIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Dropped\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	always, table, _ := strings.Cut(section, "\n| ")
	name := regexp.MustCompile(`CAP_\w+`)
	listed := func(in string) []string { return slices.Sorted(slices.Values(name.FindAllString(in, -1))) }
	full := Uses{Diagnose: true, Scripts: true, Programs: true, Journal: true}
	never := slices.Sorted(slices.Values(Unneeded(full)))
	if got := listed(always); !slices.Equal(got, never) {
		t.Errorf("the page lists %q, dropped are %q", got, never)
	}
	for _, n := range never {
		if _, ok := hostfs.CapNumber(n); !ok || strings.Contains(string(text), "| `"+n+"`") {
			t.Errorf("%s is no capability, or documented as needed", n)
		}
	}
	kept := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for setting, word := range map[string]string{"Diagnose": "`diagnose`", "Scripts": "`diagnose-scripts`", "Programs": "check programs", "Journal": "`journald`"} {
			if strings.Contains(line, word) {
				kept[setting] = append(kept[setting], listed(strings.Join(cells[:min(len(cells), 2)], ""))...)
			}
		}
	}
	for setting, u := range map[string]Uses{"Diagnose": {Diagnose: true}, "Scripts": {Scripts: true}, "Programs": {Programs: true}, "Journal": {Journal: true}} {
		drops := Unneeded(u)
		keeps := slices.DeleteFunc(Unneeded(Uses{}), func(n string) bool { return slices.Contains(drops, n) })
		slices.Sort(keeps)
		if slices.Sort(kept[setting]); len(keeps) == 0 || !slices.Equal(keeps, kept[setting]) {
			t.Errorf("%s keeps %q; the page has %q", setting, keeps, kept[setting])
		}
	}
}

func TestDropOfNoCapability(t *testing.T) {
	if _, err := Drop([]string{"CAP_NONE"}, false); err == nil || !strings.Contains(err.Error(), "CAP_NONE is not a capability") {
		t.Errorf("got %v", err)
	}
}
