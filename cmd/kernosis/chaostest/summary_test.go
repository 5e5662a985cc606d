package chaostest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// summary counts what all seeds have done and checked.
type summary struct {
	mu     sync.Mutex
	seeds  int
	faults map[string]int
	checks map[string]int
}

func newSummary() *summary { return &summary{faults: map[string]int{}, checks: map[string]int{}} }

func (s *summary) fault(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[name]++
}

func (s *summary) check(invariant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks[invariant]++
}

// String returns a table.
func (s *summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "seeds\t%d\n", s.seeds)
	for _, part := range []struct {
		title string
		of    map[string]int
	}{{"faults", s.faults}, {"invariants checked", s.checks}} {
		fmt.Fprintf(out, "%s\n", part.title)
		for _, name := range slices.Sorted(maps.Keys(part.of)) {
			fmt.Fprintf(out, "  %s\t%d\n", name, part.of[name])
		}
	}
	_ = out.Flush()
	return text.String()
}
