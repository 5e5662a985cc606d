package detector

import (
	"reflect"
	"strings"
)

// The forms are the keys of our YAML files. The readers take the keys they know
// from them, and the JSON Schema of the files is generated from them, so that
// editors and loader can't differ. Their values are never used.
//
// Tags: json is the key, jsonschema_description its meaning, jsonschema the
// constraints of github.com/invopop/jsonschema.

// ruleFileForm is a file of rules.
type ruleFileForm struct {
	APIVersion string                   `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Conditions map[string]conditionForm `json:"conditions" jsonschema_description:"Node conditions that rules may set, by type."`
	Rules      []ruleForm               `json:"rules" jsonschema_description:"The rules, at most 1000 in all files."`
}

// conditionForm is an item of conditions.
type conditionForm struct {
	HealthyReason  reasonText `json:"healthyReason" jsonschema:"required" jsonschema_description:"Reason while nothing is wrong."`
	HealthyMessage string     `json:"healthyMessage" jsonschema:"required,maxLength=1024" jsonschema_description:"Message while nothing is wrong."`
}

// ruleForm is a rule.
type ruleForm struct {
	Name         nameText      `json:"name" jsonschema:"required" jsonschema_description:"Unique name, lower case with dashes."`
	Fault        nameText      `json:"fault" jsonschema_description:"Identity across sources; the name unless given."`
	Events       []kindText    `json:"events" jsonschema:"required,minItems=1,uniqueItems=true" jsonschema_description:"Kinds of events the rule looks at."`
	When         celText       `json:"when" jsonschema_description:"CEL, bool: which events of these kinds match; all where absent."`
	GroupBy      []fieldText   `json:"groupBy" jsonschema:"maxItems=8" jsonschema_description:"Fields; each set of values is a problem of its own. None: one problem for the node."`
	Condition    conditionText `json:"condition" jsonschema_description:"Node condition that the problem makes True. Without one the rule is temporary."`
	Reason       reasonText    `json:"reason" jsonschema:"required" jsonschema_description:"PascalCase. It is API: people write switch statements on it."`
	Message      string        `json:"message" jsonschema:"required,maxLength=4096" jsonschema_description:"Text with ${CEL} parts; $${ is a plain ${."`
	Severity     severityText  `json:"severity" jsonschema:"default=warning" jsonschema_description:"How bad it is."`
	Threshold    thresholdForm `json:"threshold" jsonschema_description:"Fires when so many matching events lie within a period."`
	For          durationText  `json:"for" jsonschema_description:"Level signals only: fires when the signal lasted so long without its end."`
	ClearAfter   durationText  `json:"clearAfter" jsonschema_description:"Over after so long without a matching event; 5m for a temporary rule."`
	ClearWhen    celText       `json:"clearWhen" jsonschema_description:"CEL, bool, over a later event of the same group: it ends the problem."`
	Latched      bool          `json:"latched" jsonschema_description:"true: never over; only with a condition."`
	DependsOn    []nameText    `json:"dependsOn" jsonschema_description:"Rules that cause this one: while they fire its problems are hidden."`
	MaxGroups    int           `json:"maxGroups" jsonschema:"minimum=1,maximum=10000,default=1000" jsonschema_description:"How many problems are followed at a time."`
	Doc          string        `json:"doc" jsonschema:"maxLength=256" jsonschema_description:"Page on the problem, such as problems/OOMKilling."`
	Pattern      patternText   `json:"pattern" jsonschema_description:"Log rules: RE2 for the lines it is about; named groups are fields match.<group>."`
	ClearPattern patternText   `json:"clearPattern" jsonschema_description:"Log rules: RE2 for the lines that end the problem of their group."`
	Logs         []string      `json:"logs" jsonschema:"minItems=1" jsonschema_description:"Log rules: names of logs, such as kmsg; all where absent."`
	Lines        int           `json:"lines" jsonschema:"minimum=1,maximum=100" jsonschema_description:"Log rules: how many lines the patterns may span."`
}

// thresholdForm is a rule's threshold.
type thresholdForm struct {
	Count    int          `json:"count" jsonschema:"required,minimum=2,maximum=1000" jsonschema_description:"How many events."`
	Within   durationText `json:"within" jsonschema:"required" jsonschema_description:"By the events' own times."`
	Distinct fieldText    `json:"distinct" jsonschema_description:"Count different values of this field instead of events."`
}

// muteFileForm is a file of mutes.
type muteFileForm struct {
	APIVersion string     `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Mutes      []muteForm `json:"mutes" jsonschema:"maxItems=1000" jsonschema_description:"Problems that are not announced until a time."`
}

// muteForm is a mute.
type muteForm struct {
	Rule   nameText             `json:"rule" jsonschema:"required" jsonschema_description:"Rule whose problems are muted."`
	Where  map[string]valueText `json:"where" jsonschema:"minProperties=1" jsonschema_description:"Fields of the rule's groupBy and what they must be; all problems of the rule where absent."`
	Until  string               `json:"until" jsonschema:"required,format=date-time" jsonschema_description:"When it ends, with the zone: 2026-03-01T18:00:00Z."`
	Reason string               `json:"reason" jsonschema:"required,minLength=1,maxLength=256" jsonschema_description:"Why."`
}

// Kinds of text, each with a constraint of its own in the schema.
type (
	nameText      string // lower case with dashes
	reasonText    string // PascalCase
	conditionText string // PascalCase, and none of Kubernetes' own
	kindText      string // an event kind
	severityText  string
	fieldText     string // name of a field that can name a group
	durationText  string // as in Go
	celText       string // at most maxSource characters
	patternText   string // RE2
	valueText     string // or a number, or a boolean
)

// keysOf returns the keys of a form.
func keysOf[T any]() []string {
	t := reflect.TypeFor[T]()
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return keys
}
