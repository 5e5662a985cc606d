package draw_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
)

// Whatever names and messages contain, an SVG has the same elements, and the other formats have the
// same lines and balanced quotes.
func FuzzText(f *testing.F) {
	f.Add("title", "operation", "Check", "Failed", "message")
	f.Add(`"]; x`, "a\\", "`%%{init", "\n\r\u2028\x00", "]]></title>")
	f.Fuzz(func(t *testing.T, title, operation, effect, state, message string) {
		if operation == "" || effect == "" || state == "" || title == "" {
			t.Skip("other lines")
		}
		g := build(t, []graph.Node{node(0, "", []int{1}), node(1, operation, []int{2}), node(2, "end", nil)})
		d := &draw.Drawing{Title: title, Graph: g, Notes: []draw.Note{{}, {Effect: effect, State: state, Message: message}}, Path: []int{1, 2}}
		for form, got := range forms(d) {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
				t.Errorf("%s has characters that can't be shown", form)
			}
		}
		for form, c := range map[string]struct {
			text  string
			lines int
		}{
			"mermaid": {draw.Mermaid(d), 14}, "dot": {draw.DOT(d), 11}, "text": {draw.Text(d), 8},
		} {
			// The two nodes have one class each, or share one if their state is unknown.
			if n := strings.Count(c.text, "\n"); n != c.lines && (form != "mermaid" || n != c.lines-2) {
				t.Errorf("%s has %d lines, want %d:\n%s", form, n, c.lines, c.text)
			}
			if form == "text" {
				continue
			}
			for line := range strings.Lines(c.text) {
				if strings.Count(strings.NewReplacer(`\\`, "", `\"`, "").Replace(line), `"`)%2 != 0 {
					t.Errorf("%s: a quote is open in %s", form, line)
				}
			}
		}
		elements := 0
		for dec := xml.NewDecoder(bytes.NewReader(draw.SVG(d))); ; {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := tok.(xml.StartElement); ok {
				elements++
			}
		}
		// svg, title, background, heading; two edges of two parts; the start's group, box and
		// text; two nodes with title, box and two texts.
		if want := 4 + 1 + 4 + 3 + 2*5; elements != want {
			t.Errorf("%d elements, want %d", elements, want)
		}
	})
}
