package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/detector"
)

// Rules, rule tests and mutes shown on pages are valid, and the tests succeed.
func TestRulesOfDocs(t *testing.T) {
	shipped, err := agent.LoadRules("")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range docPages(t) {
		for _, b := range page.blocks {
			if b.language != "yaml" || firstOf(b.lines) != "apiVersion: rules.kernosis.io/v1" {
				continue
			}
			examples++
			place := fmt.Sprintf("%s:%d", b.page, b.line)
			dir := t.TempDir()
			switch {
			case strings.Contains(b.text(), "\nmutes:"):
				if _, unknown, err := detector.ParseMutes(place, []byte(b.text()), shipped); err != nil || len(unknown) > 0 {
					t.Error(place, err, unknown)
				}
			case strings.Contains(b.text(), "\ntests:"):
				// With the rules that the page asks its reader to write.
				for _, other := range page.blocks {
					if other.file() != "" && firstOf(other.lines) == firstOf(b.lines) {
						write(t, dir, filepath.Base(other.file()), other.text())
					}
				}
				if code, out := command(t, "rules", "test", write(t, dir, "page_test.yaml", b.text())); code != output.ExitOK {
					t.Errorf("%s: exit code %d\n%s", place, code, out)
				}
			default:
				if code, _ := command(t, "rules", "check", write(t, dir, "page.yaml", b.text())); code != output.ExitOK {
					t.Errorf("%s: exit code %d", place, code)
				}
			}
		}
	}
	if examples < 10 {
		t.Errorf("%d examples", examples)
	}
}
