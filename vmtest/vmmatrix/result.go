package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// state is the result of a row of the table on one kernel, which is the worst of its tests.
type state int

const (
	notRun state = iota
	notApplicable
	passed
	failed
)

type cell struct {
	state  state
	reason string // for notApplicable the kernel option; for failed the first failed test and its error
}

// key identifies a row of the table.
type key struct{ stem, fault string }

// results are the rows of one suite on one kernel, in order of arrival.
type results struct {
	order   []key
	cells   map[key]cell
	skipped []string // "test: reason" of tests skipped for a reason other than n/a
}

func (r *results) set(k key, c cell) {
	old, ok := r.cells[k]
	if !ok {
		r.order = append(r.order, k)
	}
	if !ok || c.state > old.state {
		r.cells[k] = c
	}
}

func (r *results) failures() (rows []key) {
	for _, k := range r.order {
		if r.cells[k].state == failed {
			rows = append(rows, k)
		}
	}
	return rows
}

// testEvent is a line of go tool test2json.
type testEvent struct {
	Action string
	Test   string
	Output string
}

// testMessage matches what a test printed with its place: "file_test.go:12: why".
var (
	testMessage = regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)`)
	needed      = regexp.MustCompile(`^n/a: (CONFIG_[A-Z0-9_]+) is not set$`)
)

// reader converts test2json's lines to results.
type reader struct {
	suite   suite
	results *results
	running map[string]bool
	said    map[string][]string // output by test
	log     io.Writer
}

func newReader(s suite, log io.Writer) *reader {
	return &reader{suite: s, results: &results{cells: map[key]cell{}}, running: map[string]bool{}, said: map[string][]string{}, log: log}
}

func (r *reader) read(stream io.Reader) error {
	d := json.NewDecoder(stream)
	for {
		var e testEvent
		if err := d.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("output of test2json: %w", err)
		}
		if err := r.event(e); err != nil {
			return err
		}
	}
}

func (r *reader) event(e testEvent) error {
	if e.Action == "output" {
		if _, err := io.WriteString(r.log, e.Output); err != nil {
			return err
		}
		if e.Test != "" {
			r.said[e.Test] = append(r.said[e.Test], strings.TrimRight(e.Output, "\n"))
		}
		return nil
	}
	if e.Test == "" {
		return nil
	}
	switch e.Action {
	case "run":
		r.running[e.Test] = true
	case "pass", "fail", "skip":
		delete(r.running, e.Test)
		r.ended(e.Test, e.Action)
	}
	return nil
}

func (r *reader) ended(test, how string) {
	k, ok := r.suite.row(test)
	switch how {
	case "pass":
		if ok {
			r.results.set(k, cell{state: passed})
		}
	case "fail":
		// A test without a row fails because of one of its subtests, or by itself.
		if r.failedBelow(test) {
			return
		}
		if !ok {
			k = key{strings.ToLower(strings.TrimPrefix(test, "Test")), "set-up"}
		}
		r.results.set(k, cell{failed, test + ": " + message(slices.All(r.said[test]), "no error reported")})
	case "skip":
		reason := message(slices.Backward(r.said[test]), "without a reason")
		if m := needed.FindStringSubmatch(reason); m != nil && ok {
			r.results.set(k, cell{notApplicable, m[1]})
			return
		}
		r.results.skipped = append(r.results.skipped, test+": "+reason)
	}
}

func (r *reader) failedBelow(test string) bool {
	return slices.ContainsFunc(r.results.failures(), func(k key) bool {
		return strings.HasPrefix(r.results.cells[k].reason, test+"/")
	})
}

// message returns the first of the lines that is a message of a test.
func message(lines iter.Seq2[int, string], none string) string {
	for _, line := range lines {
		if m := testMessage.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return none
}

// end completes the results after the machine has ended with an exit code.
func (r *reader) end(code int, why string) {
	for test := range r.running {
		if k, ok := r.suite.row(test); ok {
			r.results.set(k, cell{failed, test + ": " + why})
		}
	}
	if code != 0 && len(r.results.failures()) == 0 {
		r.results.set(key{r.suite.name, "the machine"}, cell{failed, why})
	}
	if n := len(r.results.skipped); n > r.suite.skips {
		r.results.set(key{r.suite.name, "skipped tests"}, cell{failed, fmt.Sprintf("%d skipped, at most %d may be: %s", n, r.suite.skips, strings.Join(r.results.skipped, "; "))})
	}
}
