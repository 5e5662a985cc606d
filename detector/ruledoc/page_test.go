package ruledoc_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/ruledoc"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestGolden writes the pages of rules whose texts contain Markdown.
func TestGolden(t *testing.T) {
	const path = "testdata/pages.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: archive.Files[0].Data}})
	if err != nil {
		t.Fatal(err)
	}
	have := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:1:1]}
	for _, p := range ruledoc.Pages(set, "https://example.org/docs/") {
		have.Files = append(have.Files, txtar.File{Name: p.Name, Data: []byte(p.Text)})
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(txtar.Format(have))); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// TestShipped checks that every shipped rule has a page, that the output is reproducible,
// and that links lead to existing pages.
func TestShipped(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	pages := ruledoc.Pages(set, "")
	if diff := cmp.Diff(pages, ruledoc.Pages(set, "")); diff != "" {
		t.Errorf("twice is not the same: %s", diff)
	}
	if len(pages) != len(set.Rules())+1 {
		t.Errorf("%d pages of %d rules", len(pages), len(set.Rules()))
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	names := make(map[string]bool)
	for _, p := range pages {
		names[p.Name] = true
	}
	for _, p := range pages {
		for rest := code.ReplaceAllString(p.Text, ""); ; {
			_, after, ok := strings.Cut(rest, "](")
			if !ok {
				break
			}
			target, after, _ := strings.Cut(after, ")")
			if !names[target] {
				t.Errorf("%s links to %s", p.Name, target)
			}
			rest = after
		}
	}
}
