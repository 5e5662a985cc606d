package draw_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
)

var update = flag.Bool("update", false, "write the golden files")

func build(tb testing.TB, nodes []graph.Node) *graph.Graph {
	tb.Helper()
	g, err := graph.Build(nodes)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func node(id int, operation string, to []int, dependences ...int) graph.Node {
	return graph.Node{ID: id, To: to, Operation: operation, Dependences: dependences}
}

// hungTask is a set as users write it.
func hungTask(tb testing.TB) *draw.Drawing {
	return &draw.Drawing{
		Title: "hung-task",
		Graph: build(tb, []graph.Node{
			node(0, "", []int{1}),
			node(1, "blocked-stacks", []int{2, 3}),
			node(2, "check-disk-stalled", []int{4}, 1),
			node(3, "check-lock-holder", nil, 1),
			node(4, "cordon", nil),
		}),
		Notes: []draw.Note{{}, {Effect: "Collect"}, {Effect: "Check"}, {Effect: "Check"}, {Effect: "Remediate"}},
	}
}

// probe is a run of a larger set, with edges across several layers and all states.
func probe(tb testing.TB) *draw.Drawing {
	state := func(effect, state, message string) draw.Note {
		return draw.Note{Effect: effect, State: state, Message: message}
	}
	return &draw.Drawing{
		Title: "probe-failure-n7-5f3c9a",
		Graph: build(tb, []graph.Node{
			node(0, "", []int{1, 9}),
			node(1, "pod-detail", []int{2, 3, 4}),
			node(2, "check-listener", []int{8}, 1),
			node(3, "socket-queues", []int{5, 6}),
			node(4, "neighbours", []int{7}),
			node(5, "check-accept-queue", []int{10}, 3),
			node(6, "check-cpu-throttled", []int{10}, 1, 3),
			node(7, "check-neighbour-dead", []int{11}, 4),
			node(8, "restart-systemd-unit", []int{12}),
			node(9, "kernel-facts", []int{12}),
			node(10, "annotate-pod", []int{12}),
			node(11, "webhook", nil),
			node(12, "reprobe-target-of-the-service-that-nobody-can-shorten", nil),
		}),
		Notes: []draw.Note{
			{}, state("Collect", "Succeeded", ""), state("Check", "Refuted", "pid 811 listens on :8080"), state("Collect", "Succeeded", ""),
			state("Collect", "", ""), state("Check", "Failed", "sock_diag: operation not permitted"), state("Check", "Succeeded", "throttled 82 % of 10 s"),
			state("Check", "", ""), state("Remediate", "", ""), state("Collect", "", ""), state("Remediate", "WouldRun", "policy default: Observe"),
			state("Remediate", "", ""), state("Check", "WouldRun", "comes after node 10"),
		},
		Path: []int{1, 3, 6, 10, 12},
	}
}

// hostile has names that try to break out of each format.
func hostile(tb testing.TB) *draw.Drawing {
	return &draw.Drawing{
		Title: `</title><script>alert(1)</script> "]; x --> y; <!-- & ` + "\x00\x1b[31m\u202e",
		Graph: build(tb, []graph.Node{
			node(0, "", []int{1, 2}),
			node(1, `"]-->evil; click n1 "javascript:alert(1)"`, nil),
			node(2, `a\N\" URL="file:///etc/passwd`+"\n%%{init: {}}%%", []int{3}),
			node(3, "节点诊断 <img src=x onerror=alert(1)> `x` #35; &lt;", nil),
		}),
		Notes: []draw.Note{{}, {State: `"><script>`, Effect: `\l"`}, {State: "Failed", Message: "<b>\xff]]>"}},
		Path:  []int{2, 3},
	}
}

func drawings(tb testing.TB) map[string]*draw.Drawing {
	return map[string]*draw.Drawing{"hung-task": hungTask(tb), "probe": probe(tb), "hostile": hostile(tb)}
}

func forms(d *draw.Drawing) map[string]string {
	return map[string]string{"mermaid": draw.Mermaid(d), "dot": draw.DOT(d), "svg": string(draw.SVG(d)), "txt": draw.Text(d)}
}

func TestGolden(t *testing.T) {
	for name, d := range drawings(t) {
		for form, got := range forms(d) {
			path := filepath.Join("testdata", name+"."+form)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is\n%s", path, got)
			}
		}
	}
}

// An SVG is well-formed, has only the listed elements and attributes, and refers to nothing outside
// of itself.
func TestSVGIsPlain(t *testing.T) {
	elements := regexp.MustCompile(`^(svg|title|rect|g|path|text)$`)
	attributes := regexp.MustCompile(`^(xmlns|width|height|viewBox|role|font-family|font-size|font-weight|fill|stroke|stroke-width|stroke-dasharray|paint-order|transform|d|x|y|rx|text-anchor)$`)
	values := regexp.MustCompile(`(?i)url\(|javascript|script|://`)
	for name, d := range drawings(t) {
		dec := xml.NewDecoder(bytes.NewReader(draw.SVG(d)))
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e, ok := tok.(xml.StartElement)
			if !ok {
				continue
			}
			if !elements.MatchString(e.Name.Local) {
				t.Errorf("%s: element %s", name, e.Name.Local)
			}
			for _, a := range e.Attr {
				if a.Name.Local != "xmlns" && (!attributes.MatchString(a.Name.Local) || values.MatchString(a.Value)) {
					t.Errorf("%s: attribute %s=%q of %s", name, a.Name.Local, a.Value, e.Name.Local)
				}
			}
		}
	}
}

func TestControlCharactersAreInNoForm(t *testing.T) {
	for form, got := range forms(hostile(t)) {
		if i := strings.IndexFunc(got, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' }); i >= 0 {
			t.Errorf("%s has %q", form, got[i:i+10])
		}
	}
}

// The largest possible graphs are drawn in bounded time: a dense one, a deep one whose edges cross
// many layers, and a wide one.
func TestLargestGraphs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	dense, deep, wide := make([]graph.Node, graph.MaxNodes), make([]graph.Node, graph.MaxNodes), make([]graph.Node, graph.MaxNodes)
	for i := range graph.MaxNodes {
		name := fmt.Sprint("operation-", i)
		if i == 0 {
			name = ""
		}
		dense[i], deep[i], wide[i] = node(i, name, nil), node(i, name, nil), node(i, name, nil)
		if i > 0 {
			wide[0].To = append(wide[0].To, i)
		}
		for j := i + 1; j < graph.MaxNodes && (j <= i+4 || i == 0); j++ {
			dense[i].To = append(dense[i].To, j)
		}
		if i+1 < graph.MaxNodes {
			deep[i].To = append(deep[i].To, i+1)
		}
		for n := 0; n < 6 && i+20 < graph.MaxNodes; n++ {
			if to := i + 20 + rnd.IntN(graph.MaxNodes-i-20); to > deep[i].To[len(deep[i].To)-1] {
				deep[i].To = append(deep[i].To, to)
			}
		}
	}
	for name, nodes := range map[string][]graph.Node{"dense": dense, "deep": deep, "wide": wide} {
		d := &draw.Drawing{Title: name, Graph: build(t, nodes)}
		began := time.Now()
		svg := draw.SVG(d)
		t.Logf("%s: %v, %d KiB", name, time.Since(began), len(svg)>>10)
		if len(svg) > 4<<20 {
			t.Errorf("%s has %d bytes", name, len(svg))
		}
	}
}
