package ruletest

import (
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/internal/form"
)

// The form types define the keys of test files, for the reader and the schema.

// fileForm is a file of tests.
type fileForm struct {
	APIVersion form.Version           `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Templates  map[string]event.Event `json:"templates" jsonschema_description:"Events to start from, by name."`
	Tests      []testForm             `json:"tests" jsonschema:"required" jsonschema_description:"The tests."`
}

// testForm is a test.
type testForm struct {
	Name    string      `json:"name" jsonschema:"required" jsonschema_description:"What the test shows."`
	Rules   []form.Name `json:"rules" jsonschema_description:"Compare only problems of these rules; default: all."`
	Sources bool        `json:"sources" jsonschema:"default=true" jsonschema_description:"Every source is up from the start; false: the test sends source events."`
	Events  []stepForm  `json:"events" jsonschema_description:"Events that arrive."`
	Expect  []checkForm `json:"expect" jsonschema:"required" jsonschema_description:"Expected state at given times."`
}

// stepForm is an item of events.
type stepForm struct {
	At      form.Duration `json:"at" jsonschema:"required" jsonschema_description:"Offset from the start of the test."`
	Repeat  int           `json:"repeat" jsonschema:"minimum=1,maximum=100000,default=1" jsonschema_description:"How many such events arrive."`
	Every   form.Duration `json:"every" jsonschema_description:"Time between repeated events."`
	Like    string        `json:"like" jsonschema_description:"Template to start from."`
	Event   event.Event   `json:"event" jsonschema_description:"The event, merged over the template."`
	Restart bool          `json:"restart" jsonschema_description:"The agent restarts, instead of an event."`
}

// checkForm is an item of expect.
type checkForm struct {
	At          form.Duration         `json:"at" jsonschema:"required" jsonschema_description:"Offset from the start of the test."`
	Problems    []problemForm         `json:"problems" jsonschema_description:"All firing problems, in any order; others by their state."`
	Conditions  map[string]wantStatus `json:"conditions" jsonschema_description:"Conditions by type."`
	Transitions map[string]int        `json:"transitions" jsonschema_description:"How often each rule has fired until then."`
}

// problemForm is an expected problem.
type problemForm struct {
	Rule         form.Name     `json:"rule" jsonschema:"required" jsonschema_description:"Its rule."`
	State        form.State    `json:"state" jsonschema:"default=firing" jsonschema_description:"Its state."`
	Count        int           `json:"count" jsonschema:"minimum=0" jsonschema_description:"Matching events in this episode."`
	Group        string        `json:"group" jsonschema_description:"Values of groupBy, joined by a comma and a space."`
	Reason       form.Reason   `json:"reason"`
	Message      string        `json:"message"`
	Subject      string        `json:"subject" jsonschema_description:"Subject of the problem."`
	Severity     form.Severity `json:"severity"`
	SuppressedBy string        `json:"suppressedBy" jsonschema_description:"Rule of the cause that hides it; empty: not hidden."`
}

// wantStatus is an expected condition: a status, or a conditionForm.
type wantStatus form.Status

// conditionForm is an expected condition in its long form.
type conditionForm struct {
	Status  form.Status `json:"status"`
	Reason  form.Reason `json:"reason"`
	Message string      `json:"message"`
}
