package ruletest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// Results holds the results of tests, and the rules that they don't cover completely. File names
// may contain anything, so every output format escapes them.
type Results struct {
	Tests  []Result
	Gaps   []Gap
	Strict bool // a gap is a failure
}

// Failed returns the number of failed tests, plus the gaps if Strict is set.
func (r *Results) Failed() int {
	n := r.failedTests()
	if r.Strict {
		n += len(r.Gaps)
	}
	return n
}

func (r *Results) failedTests() int {
	n := 0
	for _, t := range r.Tests {
		if len(t.Failures) > 0 {
			n++
		}
	}
	return n
}

// maxShown bounds a name and a line of text, in bytes.
const maxShown = 2000

// safe makes a one-line text safe for a terminal.
func safe(s string) string { return display.Safe(s, maxShown) }

// safeLines applies safe to each line of a failure, and keeps leading tabs.
func safeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		text := strings.TrimLeft(l, "\t")
		lines[i] = l[:len(l)-len(text)] + safe(text)
	}
	return strings.Join(lines, "\n")
}

func (g Gap) text() string {
	return fmt.Sprintf("no test of rule %s covers: %s", g.Rule, strings.Join(g.Missing, ", "))
}

// WriteText writes each failure with its file:line, and the counts.
func (r *Results) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.Tests {
		for _, f := range t.Failures {
			fmt.Fprintf(&b, "%s:%d: %s: at %v: %s\n", safe(t.File), f.Line, safe(t.Name), f.At, safeLines(f.Text))
		}
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(&b, "%s:%d: %s\n", safe(g.File), g.Line, g.text())
	}
	fmt.Fprintf(&b, "%d tests, %d failed", len(r.Tests), r.failedTests())
	if len(r.Gaps) > 0 {
		fmt.Fprintf(&b, ", %d rules not fully tested", len(r.Gaps))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTAP writes the Test Anything Protocol, version 14. Gaps are comments unless Strict is set.
func (r *Results) WriteTAP(w io.Writer) error {
	var b strings.Builder
	points := len(r.Tests)
	if r.Strict {
		points += len(r.Gaps)
	}
	fmt.Fprintf(&b, "TAP version 14\n1..%d\n", points)
	// An unescaped # would begin a directive.
	escape := strings.NewReplacer(`\`, `\\`, "#", `\#`)
	for i, t := range r.Tests {
		not := ""
		if len(t.Failures) > 0 {
			not = "not "
		}
		fmt.Fprintf(&b, "%sok %d - %s\n", not, i+1, escape.Replace(safe(fmt.Sprintf("%s:%d: %s", t.File, t.Line, t.Name))))
		if len(t.Failures) == 0 {
			continue
		}
		b.WriteString("  ---\n  failures:\n")
		for _, f := range t.Failures {
			fmt.Fprintf(&b, "  - {file: %s, line: %d, at: %s, message: %s}\n", quoted(t.File), f.Line, quoted(f.At.String()), quoted(safeLines(f.Text)))
		}
		b.WriteString("  ...\n")
	}
	for i, g := range r.Gaps {
		text := escape.Replace(safe(fmt.Sprintf("%s:%d: %s", g.File, g.Line, g.text())))
		if r.Strict {
			fmt.Fprintf(&b, "not ok %d - %s\n", len(r.Tests)+i+1, text)
		} else {
			fmt.Fprintf(&b, "# %s\n", text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoted returns a text as a JSON string, which is valid YAML too.
func quoted(s string) string {
	b, _ := json.Marshal(strings.ToValidUTF8(s, "\ufffd")) // strings always marshal
	return string(b)
}

// The elements of JUnit XML that CI systems read.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name     string         `xml:"name,attr"`
		Class    string         `xml:"classname,attr"`
		File     string         `xml:"file,attr"`
		Line     int            `xml:"line,attr"`
		Failures []junitMessage `xml:"failure"`
		Skipped  *junitMessage  `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes JUnit XML: one suite per file, and one for the gaps, which are skipped
// tests unless Strict is set.
func (r *Results) WriteJUnit(w io.Writer) error {
	var out junitSuites
	at := make(map[string]int)
	for _, t := range r.Tests {
		i, ok := at[t.File]
		if !ok {
			i = len(out.Suites)
			at[t.File] = i
			out.Suites = append(out.Suites, junitSuite{Name: safe(t.File)})
		}
		s := &out.Suites[i]
		c := junitCase{Name: safe(t.Name), Class: safe(t.File), File: safe(t.File), Line: t.Line}
		for _, f := range t.Failures {
			first, _, _ := strings.Cut(f.Text, "\n")
			c.Failures = append(c.Failures, junitMessage{safe(first), fmt.Sprintf("%s:%d: at %v: %s", safe(t.File), f.Line, f.At, safeLines(f.Text))})
		}
		s.add(c)
	}
	if len(r.Gaps) > 0 {
		s := junitSuite{Name: "coverage"}
		for _, g := range r.Gaps {
			c := junitCase{Name: g.Rule, Class: "coverage", File: safe(g.File), Line: g.Line}
			m := junitMessage{Message: g.text(), Text: fmt.Sprintf("%s:%d: %s", safe(g.File), g.Line, g.text())}
			if r.Strict {
				c.Failures = []junitMessage{m}
			} else {
				c.Skipped = &m
			}
			s.add(c)
		}
		out.Suites = append(out.Suites, s)
	}
	for _, s := range out.Suites {
		out.Tests += s.Tests
		out.Failures += s.Failures
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(c junitCase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	if len(c.Failures) > 0 {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
}
