package form

import "github.com/kernosis/kernosis/collector/event"

// TestFile is a file of tests.
type TestFile struct {
	APIVersion Version                `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Templates  map[string]event.Event `json:"templates" jsonschema_description:"Events to start from, by name."`
	Tests      []Test                 `json:"tests" jsonschema:"required" jsonschema_description:"The tests."`
}

// Test is a test.
type Test struct {
	Name    string  `json:"name" jsonschema:"required" jsonschema_description:"What the test shows."`
	Rules   []Name  `json:"rules" jsonschema_description:"Compare only problems of these rules; default: all."`
	Sources bool    `json:"sources" jsonschema:"default=true" jsonschema_description:"Every source is up from the start; false: the test sends source events."`
	Events  []Step  `json:"events" jsonschema_description:"Events that arrive."`
	Expect  []Check `json:"expect" jsonschema:"required" jsonschema_description:"Expected state at given times."`
}

// Step is an item of events.
type Step struct {
	At      Duration    `json:"at" jsonschema:"required" jsonschema_description:"Offset from the start of the test."`
	Repeat  int         `json:"repeat" jsonschema:"minimum=1,maximum=100000,default=1" jsonschema_description:"How many such events arrive."`
	Every   Duration    `json:"every" jsonschema_description:"Time between repeated events."`
	Like    string      `json:"like" jsonschema_description:"Template to start from."`
	Event   event.Event `json:"event" jsonschema_description:"The event, merged over the template."`
	Restart bool        `json:"restart" jsonschema_description:"The agent restarts, instead of an event."`
}

// Check is an item of expect.
type Check struct {
	At          Duration                 `json:"at" jsonschema:"required" jsonschema_description:"Offset from the start of the test."`
	Problems    []Problem                `json:"problems" jsonschema_description:"All firing problems, in any order; others by their state."`
	Conditions  map[string]WantCondition `json:"conditions" jsonschema_description:"Conditions by type."`
	Transitions map[string]int           `json:"transitions" jsonschema_description:"How often each rule has fired until then."`
}

// Problem is an expected problem.
type Problem struct {
	Rule         Name     `json:"rule" jsonschema:"required" jsonschema_description:"Its rule."`
	State        State    `json:"state" jsonschema:"default=firing" jsonschema_description:"Its state."`
	Count        int      `json:"count" jsonschema:"minimum=0" jsonschema_description:"Matching events in this episode."`
	Group        string   `json:"group" jsonschema_description:"Values of groupBy, joined by a comma and a space."`
	Reason       Reason   `json:"reason"`
	Message      string   `json:"message"`
	Subject      string   `json:"subject" jsonschema_description:"Subject of the problem."`
	Severity     Severity `json:"severity"`
	SuppressedBy string   `json:"suppressedBy" jsonschema_description:"Rule of the cause that hides it; empty: not hidden."`
}

// WantCondition is an expected condition: a status, or a ConditionState.
type WantCondition Status

// ConditionState is an expected condition in its long form.
type ConditionState struct {
	Status  Status `json:"status"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}
