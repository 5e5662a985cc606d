package ruletest

import (
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// File is a test file to run.
type File struct {
	Name string // shown in reports
	Data []byte
}

// test is one case of a file.
type test struct {
	name    string
	file    *document.Reader
	line    int
	rules   []string // rules whose problems are compared; empty: all
	sources bool     // all sources are up from the start
	steps   []step
	checks  []check
}

// step is an event or a restart at a time.
type step struct {
	at      time.Duration
	event   *event.Event
	restart bool
	set     struct{ time, boot bool } // whether the test sets these, not the runner
}

// check holds the expectations at a time, after all steps up to then.
type check struct {
	at          time.Duration
	line        int
	hasProblems bool
	problems    []wantProblem
	conditions  []wantCondition
	transitions map[string]int // how often each rule fired until then
}

// wantProblem is an expected problem. Fields that are not set are not compared.
type wantProblem struct {
	line  int
	text  map[string]string // rule, group, reason, message, subject, severity, suppressedBy
	state problem.State
	count int // -1: not compared
}

// wantCondition is an expected condition.
type wantCondition struct {
	line                  int
	typ                   string
	status                problem.Status
	reason, message       string
	hasReason, hasMessage bool
}
