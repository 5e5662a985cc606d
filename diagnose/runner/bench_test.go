package runner_test

import (
	"fmt"
	"testing"

	"github.com/kernosis/kernosis/diagnose/runner"
)

// The cost of a run besides its operations: two checkpoints per node, each on disk.
func BenchmarkExecute(b *testing.B) {
	ladder := []string{": 1"} // 2^40 paths, which all fail at the last node
	for i := range 40 {
		top := 1 + 3*i
		ladder = append(ladder, fmt.Sprintf("collect-a: %d %d", top+1, top+2), fmt.Sprintf("collect-b: %d", top+3), fmt.Sprintf("collect-c: %d", top+3))
	}
	ladder = append(ladder, "check-end-no:")
	for name, lines := range map[string][]string{"five nodes": hungTask(), "ladder of 40 diamonds": ladder} {
		b.Run(name, func(b *testing.B) {
			var s script
			r := newRunner(b, runner.Config{Dir: b.TempDir()})
			d := s.diagnosis(b, "a", lines...)
			for i := 0; b.Loop(); i++ {
				d.ID = fmt.Sprint("d", i)
				execute(b, r, d)
			}
		})
	}
}
