package main

import (
	"encoding/json"
	"fmt"
	"io"
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

// cell is the result of one row on one kernel.
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

func newResults() *results { return &results{cells: map[key]cell{}} }

func (r *results) set(k key, c cell) {
	old, ok := r.cells[k]
	if !ok {
		r.order = append(r.order, k)
	}
	if !ok || c.state > old.state {
		r.cells[k] = c
	}
}

// testEvent is a line of go tool test2json.
type testEvent struct {
	Action string
	Test   string
	Output string
}

// skipReason matches what a skipped test printed: "file_test.go:12: why".
var (
	skipReason = regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)`)
	needed     = regexp.MustCompile(`^n/a: (CONFIG_[A-Z0-9_]+) is not set$`)
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
	return &reader{suite: s, results: newResults(), running: map[string]bool{}, said: map[string][]string{}, log: log}
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
	stem, fault, ok := r.suite.row(test)
	k := key{stem, fault}
	switch how {
	case "pass":
		if ok {
			r.results.set(k, cell{state: passed})
		}
	case "fail":
		// A test without a row fails because of one of its subtests, or by itself.
		if !ok && !r.failedBelow(test) {
			k, ok = key{strings.ToLower(strings.TrimPrefix(test, "Test")), "set-up"}, true
		}
		if ok && !r.failedBelow(test) {
			r.results.set(k, cell{failed, test + ": " + r.lastWords(test)})
		}
	case "skip":
		reason := r.skipReason(test)
		if m := needed.FindStringSubmatch(reason); m != nil && ok {
			r.results.set(k, cell{notApplicable, m[1]})
			return
		}
		r.results.skipped = append(r.results.skipped, test+": "+reason)
	}
}

func (r *reader) failedBelow(test string) bool {
	for _, c := range r.results.cells {
		if c.state == failed && strings.HasPrefix(c.reason, test+"/") {
			return true
		}
	}
	return false
}

func (r *reader) skipReason(test string) string {
	for _, line := range slices.Backward(r.said[test]) {
		if m := skipReason.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return "without a reason"
}

// lastWords returns the first error that a failed test printed.
func (r *reader) lastWords(test string) string {
	for _, line := range r.said[test] {
		if m := skipReason.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return "no error reported"
}

// end completes the results after the machine has ended with an exit code.
func (r *reader) end(code int, why string) {
	for test := range r.running {
		if stem, fault, ok := r.suite.row(test); ok {
			r.results.set(key{stem, fault}, cell{failed, test + ": " + why})
		}
	}
	failures := 0
	for _, c := range r.results.cells {
		if c.state == failed {
			failures++
		}
	}
	if code != 0 && failures == 0 {
		r.results.set(key{r.suite.name, "the machine"}, cell{failed, why})
	}
	if n := len(r.results.skipped); n > r.suite.skips {
		r.results.set(key{r.suite.name, "skipped tests"}, cell{failed, fmt.Sprintf("%d skipped, at most %d may be: %s", n, r.suite.skips, strings.Join(r.results.skipped, "; "))})
	}
}
