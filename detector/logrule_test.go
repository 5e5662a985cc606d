package detector

import "testing"

// TestAnchorEnd checks that AnchorEnd applies to the pattern only, because
// node-problem-detector has no clearPattern.
func TestAnchorEnd(t *testing.T) {
	r := &Rule{Name: "npd", Pattern: "a", ClearPattern: "b", AnchorEnd: true, Lines: 3, Logs: []string{"kmsg"}}
	if p := r.pattern(); !p.AnchorEnd || p.Lines != 3 || p.Expr != "a" || p.Name != "npd/pattern" || p.Logs[0] != "kmsg" {
		t.Errorf("have %+v", p)
	}
	if p := r.clearPattern(); p.AnchorEnd || p.Expr != "b" || p.Name != "npd/clearPattern" {
		t.Errorf("have %+v", p)
	}
}
