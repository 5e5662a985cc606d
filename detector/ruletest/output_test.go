package ruletest_test

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/detector/ruletest"
)

// hostile returns results with names that would break the syntax of each output format.
func hostile() *ruletest.Results {
	return &ruletest.Results{
		Tests: []ruletest.Result{
			{File: "a_test.yaml", Line: 3, Name: "fine"},
			{File: "a_test.yaml", Line: 9, Name: "x # SKIP \\ <b>\"&]]>\x1b[2J\nok 2 - y\u202e", Failures: []ruletest.Failure{
				{Line: 11, At: 5 * time.Second, Text: "message is\n\t\"a\", want\n\t\"b]]></failure>\x00\""},
				{Line: 12, At: time.Minute, Text: "  ...\nok 3"},
			}},
			{File: "b & <c>_test.yaml", Line: 1, Name: "\xff"},
		},
		Gaps: []ruletest.Gap{{Rule: "never", File: "a.yaml", Line: 4, Missing: []string{"fires", "clears"}}},
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := hostile().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`a_test.yaml:11: x # SKIP \ <b>"&]]>\x1b[2J\nok 2 - y\u202e: at 5s: message is
	"a", want
	"b]]></failure>\x00"
a_test.yaml:12: x # SKIP \ <b>"&]]>\x1b[2J\nok 2 - y\u202e: at 1m0s:   ...
ok 3
a.yaml:4: no test of rule never covers: fires, clears
3 tests, 1 failed, 1 rules not fully tested
`, b.String()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestTAP(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := hostile()
		r.Strict = strict
		var b bytes.Buffer
		if err := r.WriteTAP(&b); err != nil {
			t.Fatal(err)
		}
		want := `TAP version 14
1..3
ok 1 - a_test.yaml:3: fine
not ok 2 - a_test.yaml:9: x \# SKIP \\ <b>"&]]>\\x1b[2J\\nok 2 - y\\u202e
  ---
  failures:
  - {file: "a_test.yaml", line: 11, at: "5s", message: "message is\n\t\"a\", want\n\t\"b]]\u003e\u003c/failure\u003e\\x00\""}
  - {file: "a_test.yaml", line: 12, at: "1m0s", message: "  ...\nok 3"}
  ...
ok 3 - b & <c>_test.yaml:1: \\xff
# a.yaml:4: no test of rule never covers: fires, clears
`
		if strict {
			want = strings.Replace(want, "1..3", "1..4", 1)
			want = strings.Replace(want, "# a.yaml", "not ok 4 - a.yaml", 1)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("strict %v (-want +have):\n%s", strict, diff)
		}
	}
}

// TestJUnit reads the XML back and checks that the names are escaped.
func TestJUnit(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := hostile()
		r.Strict = strict
		var b bytes.Buffer
		if err := r.WriteJUnit(&b); err != nil {
			t.Fatal(err)
		}
		var doc struct {
			XMLName  xml.Name `xml:"testsuites"`
			Tests    int      `xml:"tests,attr"`
			Failures int      `xml:"failures,attr"`
			Suites   []struct {
				Name  string `xml:"name,attr"`
				Cases []struct {
					Name     string `xml:"name,attr"`
					Line     int    `xml:"line,attr"`
					Failures []struct {
						Message string `xml:"message,attr"`
						Text    string `xml:",chardata"`
					} `xml:"failure"`
					Skipped *struct{} `xml:"skipped"`
				} `xml:"testcase"`
			} `xml:"testsuite"`
		}
		dec := xml.NewDecoder(&b)
		dec.Strict = true
		if err := dec.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		failures := map[bool]int{false: 1, true: 2}[strict]
		if doc.Tests != 4 || doc.Failures != failures || len(doc.Suites) != 3 || r.Failed() != failures {
			t.Fatalf("strict %v: %+v", strict, doc)
		}
		c := doc.Suites[0].Cases[1]
		if c.Name != `x # SKIP \ <b>"&]]>\x1b[2J\nok 2 - y\u202e` || c.Line != 9 || len(c.Failures) != 2 || c.Failures[0].Message != "message is" ||
			c.Failures[0].Text != "a_test.yaml:11: at 5s: message is\n\t\"a\", want\n\t\"b]]></failure>\\x00\"" {
			t.Errorf("%+v", c)
		}
		if gap := doc.Suites[2].Cases[0]; gap.Name != "never" || (gap.Skipped != nil) == strict {
			t.Errorf("strict %v: %+v", strict, gap)
		}
	}
}
