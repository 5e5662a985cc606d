package detector_test

import (
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// kernelLine is a line of testdata/kernellines.yaml.
type kernelLine struct {
	Rule, Kernel, Source, Text string
	Times                      int
	Absent                     string
}

func kernelLines(tb testing.TB) []kernelLine {
	tb.Helper()
	data, err := os.ReadFile("testdata/kernellines.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	var file struct{ Lines []kernelLine }
	if err := yaml.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	if len(file.Lines) < 120 {
		tb.Fatalf("%d lines", len(file.Lines))
	}
	return file.Lines
}

// TestKernelLines: each line sets off the rule that it is listed with, on a node whose log is
// all there is, and nothing where a process has written it.
func TestKernelLines(t *testing.T) {
	set := shipped(t)
	for _, l := range kernelLines(t) {
		for _, origin := range []string{event.OriginKernel, "user"} {
			e := detector.NewEngine(set)
			var reported []string
			for i := range max(l.Times, 1) {
				now := at(time.Duration(i) * time.Second)
				ev := logged(time.Duration(i)*time.Second, l.Text)
				ev.BootTime, ev.Log.Log, ev.Log.Origin = event.Duration(now.Boot), "kmsg", origin
				for _, tr := range e.Observe(ev, now) {
					if p := tr.Problem; p != nil && p.State == problem.Firing && p.SuppressedBy == "" {
						reported = append(reported, p.Rule)
					}
				}
			}
			switch found := len(reported) > 0 && reported[len(reported)-1] == l.Rule || len(reported) > 1 && reported[0] == l.Rule; {
			case origin != event.OriginKernel && reported != nil:
				t.Errorf("%q of %s: reported by %v", l.Text, origin, reported)
			case origin == event.OriginKernel && !found:
				t.Errorf("%q (%s, %s): reported by %v, want %s", l.Text, l.Kernel, l.Source, reported, l.Rule)
			}
		}
	}
}
