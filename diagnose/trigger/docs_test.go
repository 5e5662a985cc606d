package trigger_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// The examples in the docs can be read and used.
func TestExamplesOfTheDocs(t *testing.T) {
	r, err := reader()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range []string{"triggers.md", "api.md", "convert.md"} {
		text := readPage(t, page)
		for _, block := range regexp.MustCompile("(?s)```yaml\n(apiVersion: kernosis.io/.*?)```").FindAllStringSubmatch(text, -1) {
			set, err := r.Parse(document.File{Name: page, Data: []byte(block[1])})
			if err != nil {
				t.Error(err)
				continue
			}
			for _, tr := range set.Triggers {
				count++
				m, err := trigger.Compile(tr)
				if err != nil {
					t.Errorf("%s: %s: %s", page, tr.Name, err)
				} else if w := m.Warnings(); len(w) > 0 {
					t.Errorf("%s: %s: %s", page, tr.Name, w)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("%d Triggers in the docs", count)
	}
}

func readPage(tb testing.TB, page string) string {
	tb.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// The docs name all parameters of Diagnoses, all reasons, and all labels and annotations.
func TestTheDocsNameAll(t *testing.T) {
	text := readPage(t, "triggers.md")
	all := []string{
		trigger.WithheldCooldown, trigger.WithheldRateLimit, trigger.WithheldSame, trigger.WithheldMuted, trigger.WithheldSuppressed,
		trigger.WithheldUnknownPod, trigger.WithheldUnknownNode, trigger.WithheldNoTarget, trigger.WithheldInvalidTarget, trigger.WithheldOld, trigger.WithheldFuture,
		trigger.LabelSource, trigger.AnnotationTriggeredBy, trigger.AnnotationSubject, trigger.AnnotationEpisode, trigger.AnnotationPodUID, trigger.AnnotationOmitted,
	}
	for _, word := range all {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("%s is not reported", word)
		}
	}
}
