package problems_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/docs/problems"
)

// Each shipped rule has a page with advice, in lines that are safe for a terminal.
func TestEachShippedRuleHasAdvice(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range set.Rules() {
		lines := problems.Advice(r.Doc)
		if len(lines) == 0 || len(lines) > 3 {
			t.Errorf("rule %s, page %s: %q", r.Name, r.Doc, lines)
		}
		for _, l := range lines {
			if len(l) < 10 || len(l) > 264 || strings.ContainsAny(l, "`\n") || strings.Contains(l, "](") || strings.HasPrefix(l, "As for") {
				t.Errorf("rule %s, page %s: %q", r.Name, r.Doc, l)
			}
		}
	}
}

func TestAdvice(t *testing.T) {
	for page, want := range map[string][]string{
		"problems/ProbeTargetAcceptQueueFull": {"Find why accept() isn't called: CPU throttling (cpu.stat, nr_throttled), all workers busy with slow requests, a deadlock, a stopped process. A longer backlog only delays it", "A short queue: raise somaxconn and the listen() backlog"},
		// Refers to the page above.
		"ProbeTargetNotAccepted": problems.Advice("ProbeTargetAcceptQueueFull"),
		"OOMKilling": {
			"Own limit: compare the anonymous memory with the limit. Much lower means that page cache, tmpfs or another process of the cgroup fills it",
			"The pod's limit: a sidecar may be the one that grew. Compare memory.stat of each container's cgroup",
			"Node out of memory: find pods without limits, and check kubelet's eviction thresholds and system reservation",
		},
		"NoSuchPage":        nil,
		"../problems/../x":  nil,
		"problems/":         nil,
		"problems/advice.g": nil,
	} {
		if got := problems.Advice(page); !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", page, got, want)
		}
	}
}
