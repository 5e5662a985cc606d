package problems_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each page has the same four parts, the evidence in the first one, commands to copy in the second,
// and no project-specific jargon.
func TestPagesHaveTheSameParts(t *testing.T) {
	paths, err := filepath.Glob("*.md")
	if err != nil || len(paths) < 90 {
		t.Fatal(len(paths), err)
	}
	parts := []string{"What it means", "Check now", "What to do", "How it clears"}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if head := regexp.MustCompile(`^# (\w+)\n\*(Temporary, |Condition[.,] )`).FindStringSubmatch(text); head == nil || head[1]+".md" != path {
			t.Errorf("%s: the title is not the page's name, or no line below it says what kind of problem it is", path)
		}
		var headings []string
		sections := map[string]string{}
		for _, section := range strings.Split(text, "\n## ")[1:] {
			heading, body, _ := strings.Cut(section, "\n\n")
			headings = append(headings, heading)
			sections[heading] = body
		}
		if !slices.Equal(headings, parts) {
			t.Errorf("%s: the parts are %q, want %q", path, headings, parts)
			continue
		}
		if !strings.Contains(sections["What it means"], "\n\n**Evidence.** ") {
			t.Errorf("%s: no evidence", path)
		}
		if !strings.HasPrefix(sections["Check now"], "```sh\nkubectl ") {
			t.Errorf("%s: what to check now begins with no command", path)
		}
		for _, part := range parts {
			if len(strings.TrimSpace(sections[part])) < 10 {
				t.Errorf("%s: nothing below %q", path, part)
			}
		}
		if m := regexp.MustCompile(`(?i)\b(tell|tells|told)\b`).FindString(text); m != "" {
			t.Errorf("%s: %q: write report, show or state", path, m)
		}
	}
}
