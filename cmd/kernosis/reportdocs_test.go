package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/detector"
)

// The examples of docs/reports.md are taken.
func TestDocumentedReports(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	block := func(begin, end string) string {
		t.Helper()
		_, rest, found := strings.Cut(page, begin)
		text, after, ended := strings.Cut(rest, end)
		page = after
		if !found || !ended {
			t.Fatalf("no %q", begin)
		}
		return text
	}
	file := block("```yaml\n", "```")
	if out, _, err := printed(t, file); err != nil || !strings.Contains(out, "heartbeat: 1m30s") {
		t.Errorf("%v\n%s", err, out)
	}
	in, err := ingest.New(ingest.Config{Sources: []ingest.Source{{Name: "gpu-monitor", Conditions: []string{"GPUUnhealthy"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	reported := make(chan string, 10)
	go func() {
		ended <- in.Run(ctx, func(ev *event.Event) { reported <- ev.Check.Check + " " + ev.Check.Reason })
	}()
	text := []byte(block("-d '", "'"))
	for {
		_, err := in.Report(ingest.Peer{}, "", text)
		if refusal, ok := err.(*ingest.Refusal); ok && refusal.Outcome == ingest.Closing { //nolint:errorlint // it is not wrapped
			continue // Run begins
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if a, b := <-reported, <-reported; a != "gpu-monitor/warn XidSeen" || b != "gpu-monitor/GPUUnhealthy XidError" {
		t.Errorf("reported %q and %q", a, b)
	}
	if _, err := detector.Load(fstest.MapFS{"own.yaml": {Data: []byte(block("```yaml\n", "```"))}}); err != nil {
		t.Error(err)
	}
}
