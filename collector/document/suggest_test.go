package document

import (
	"strings"
	"testing"
)

func TestSuggest(t *testing.T) {
	known := []string{"events", "when", "groupBy", "clearAfter"}
	for wrong, want := range map[string]string{
		"event": "events", "evnts": "events", "groupby": "groupBy", "clearafter": "clearAfter", "whne": "when",
		"zzz": "", "": "", strings.Repeat("events", 100): "",
	} {
		have := Suggest(wrong, known)
		if want == "" && have != "" || want != "" && !strings.Contains(have, `"`+want+`"`) {
			t.Errorf("Suggest(%q) = %q, want %q", wrong, have, want)
		}
	}
}
