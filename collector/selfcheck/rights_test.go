package selfcheck

import (
	"os"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// The dropped capabilities are documented, and are not among those documented as required.
func TestNeedlessIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Given up\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	for _, name := range Needless() {
		if _, ok := hostfs.CapNumber(name); !ok {
			t.Errorf("%s is no capability", name)
		}
		if !strings.Contains(section, name) || strings.Contains(string(text), "| `"+name+"`") {
			t.Errorf("%s is not documented as given up, or as needed", name)
		}
	}
	if listed := strings.Count(section, "CAP_"); listed != len(Needless()) {
		t.Errorf("the page lists %d, given up are %d", listed, len(Needless()))
	}
}

func TestDropOfNoCapability(t *testing.T) {
	if _, err := Drop([]string{"CAP_NONE"}, false); err == nil || !strings.Contains(err.Error(), "CAP_NONE is not a capability") {
		t.Errorf("got %v", err)
	}
}
