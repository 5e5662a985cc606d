package policy_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The page's table lists exactly the reasons that the code uses.
func TestThePageHasAllReasons(t *testing.T) {
	page, err := os.ReadFile("../../docs/remediation.md")
	if err != nil {
		t.Fatal(err)
	}
	constants, err := os.ReadFile("../api/v1alpha1/condition.go")
	if err != nil {
		t.Fatal(err)
	}
	words := make(map[string]string)
	for _, m := range regexp.MustCompile(`(Reason\w+) += "(\w+)"`).FindAllStringSubmatch(string(constants), -1) {
		words[m[1]] = m[2]
	}
	var used, reported []string
	for _, file := range []string{"decision.go", "rules.go", "escalation.go", "budget.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`v1alpha1\.(Reason\w+)`).FindAllStringSubmatch(string(text), -1) {
			used = append(used, words[m[1]])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\|.*\\| `(\\w+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		reported = append(reported, m[1])
	}
	slices.Sort(used)
	slices.Sort(reported)
	if used, reported = slices.Compact(used), slices.Compact(reported); !slices.Equal(used, reported) {
		t.Errorf("the code has %v\nthe page has %v", used, reported)
	}
}
