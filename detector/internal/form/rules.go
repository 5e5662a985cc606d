package form

// RuleFile is a file of rules.
type RuleFile struct {
	APIVersion Version            `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Conditions map[string]Healthy `json:"conditions" jsonschema_description:"Node conditions that rules may set, by type."`
	Rules      []Rule             `json:"rules" jsonschema_description:"The rules, at most 1000 in all files."`
}

// Healthy is an item of conditions.
type Healthy struct {
	HealthyReason  Reason `json:"healthyReason" jsonschema:"required" jsonschema_description:"Reason while nothing is wrong."`
	HealthyMessage string `json:"healthyMessage" jsonschema:"required,maxLength=1024" jsonschema_description:"Message while nothing is wrong."`
}

// Rule is a rule.
type Rule struct {
	Extends      Name             `json:"extends" jsonschema_description:"Name of a shipped rule to inherit missing keys from. A rule with the same name replaces it."`
	Name         Name             `json:"name" jsonschema:"required" jsonschema_description:"Unique name, lower case with dashes."`
	Fault        Name             `json:"fault" jsonschema_description:"Identity across sources; default: the name."`
	Events       []Kind           `json:"events" jsonschema:"minItems=1,uniqueItems=true" jsonschema_description:"Kinds of events that the rule uses."`
	When         CEL              `json:"when" jsonschema_description:"CEL, bool: which events of these kinds match; default: all."`
	GroupBy      []Field          `json:"groupBy" jsonschema:"maxItems=8" jsonschema_description:"Fields; each combination of values is a separate problem. None: one problem for the node."`
	Condition    Condition        `json:"condition" jsonschema_description:"Node condition that the problem makes True. Without one the rule is temporary."`
	Reason       Reason           `json:"reason" jsonschema_description:"PascalCase. It is API: automation depends on it."`
	Message      string           `json:"message" jsonschema:"maxLength=4096" jsonschema_description:"Text with ${CEL} parts; $${ is a literal ${."`
	Severity     Severity         `json:"severity" jsonschema:"default=warning" jsonschema_description:"Severity of the problem."`
	SeverityWhen SeverityWhen     `json:"severityWhen" jsonschema:"minProperties=1" jsonschema_description:"Severity by event: the worst one whose expression is true; severity if none is."`
	Threshold    Threshold        `json:"threshold" jsonschema_description:"Fires when this many events match within a period."`
	For          Duration         `json:"for" jsonschema_description:"Level signals only: fires when the signal has lasted this long."`
	AbsentFor    Duration         `json:"absentFor" jsonschema_description:"Fires when no event has matched for this long, and ends with the next match. Not with groupBy, threshold, for or keys that clear."`
	ClearAfter   Duration         `json:"clearAfter" jsonschema_description:"Ends after this long without a matching event; default for a temporary rule: 5m."`
	ClearWhen    CEL              `json:"clearWhen" jsonschema_description:"CEL, bool: which later events of the same group end the problem."`
	Latched      bool             `json:"latched" jsonschema_description:"true: never ends; only with a condition."`
	DependsOn    []Name           `json:"dependsOn" jsonschema_description:"Rules that cause this one: while one of them fires, this rule's problems are hidden."`
	Equal        map[string]Field `json:"equal" jsonschema:"minProperties=1" jsonschema_description:"With dependsOn: a cause hides only problems with the same values. Maps fields of this rule's groupBy to fields of the causes' groupBy."`
	MaxGroups    int              `json:"maxGroups" jsonschema:"minimum=1,maximum=10000,default=1000" jsonschema_description:"Maximum number of problems tracked at a time."`
	RateLimit    RateLimit        `json:"rateLimit" jsonschema_description:"Log rules: how many events are recorded individually; further ones are recorded together. Default: 1000 within 1h; no limit if logs is [kernel]."`
	Doc          string           `json:"doc" jsonschema:"maxLength=256" jsonschema_description:"Page on the problem, such as problems/OOMKilling."`
	Pattern      Pattern          `json:"pattern" jsonschema_description:"Log rules: RE2 that matches the lines; named groups become fields match.<group>."`
	ClearPattern Pattern          `json:"clearPattern" jsonschema_description:"Log rules: RE2 for the lines that end the problem of their group."`
	Logs         []string         `json:"logs" jsonschema:"minItems=1" jsonschema_description:"Log rules: names of logs; kernel: all logs with kernel messages; default: all but crash."`
	FallbackFor  []string         `json:"fallbackFor" jsonschema:"minItems=1" jsonschema_description:"Log rules: inactive while a source of these event kinds, such as oomkill, is up."`
	Lines        int              `json:"lines" jsonschema:"minimum=1,maximum=100" jsonschema_description:"Log rules: how many lines the patterns may span."`
	AnchorEnd    bool             `json:"anchorEnd" jsonschema_description:"Log rules: the match must end where the joined last lines end, as in node-problem-detector."`
}

// SeverityWhen is a rule's severityWhen.
type SeverityWhen struct {
	Critical CEL `json:"critical" jsonschema_description:"CEL, bool."`
	Warning  CEL `json:"warning" jsonschema_description:"CEL, bool."`
	Info     CEL `json:"info" jsonschema_description:"CEL, bool."`
}

// Threshold is a rule's threshold.
type Threshold struct {
	Count    int      `json:"count" jsonschema:"required,minimum=2,maximum=1000" jsonschema_description:"How many events."`
	Within   Duration `json:"within" jsonschema:"required" jsonschema_description:"Period, by the events' own times."`
	Distinct Field    `json:"distinct" jsonschema_description:"Count different values of this field instead of events."`
}

// RateLimit is a rule's rateLimit.
type RateLimit struct {
	Count  int      `json:"count" jsonschema:"required,minimum=1,maximum=50000" jsonschema_description:"How many events."`
	Within Duration `json:"within" jsonschema:"required" jsonschema_description:"Period."`
}

// MuteFile is a file of mutes.
type MuteFile struct {
	APIVersion Version `json:"apiVersion" jsonschema:"required" jsonschema_description:"Version of the file's form."`
	Mutes      []Mute  `json:"mutes" jsonschema:"maxItems=1000" jsonschema_description:"Problems that are not announced until a given time."`
}

// Mute is a mute.
type Mute struct {
	Rule   Name             `json:"rule" jsonschema:"required" jsonschema_description:"Rule whose problems are muted."`
	Where  map[string]Value `json:"where" jsonschema:"minProperties=1" jsonschema_description:"Fields of the rule's groupBy and their values; in texts, * matches any characters. Default: all problems of the rule."`
	Until  string           `json:"until" jsonschema:"required,format=date-time" jsonschema_description:"When it ends, with the zone: 2026-03-01T18:00:00Z."`
	Reason string           `json:"reason" jsonschema:"required,minLength=1,maxLength=256" jsonschema_description:"Why."`
}
