package event

// Check: a check program has run. Every result is an event, not only faults; rules decide on them.
const Check Kind = "check"

// CheckData is the payload of [Check]. Message is what the program printed or the problem daemon
// reported: bounded, but otherwise untrusted.
type CheckData struct {
	Check   string `json:"check"`             // name of the check, unique on the node
	Status  string `json:"status"`            // CheckOK, CheckProblem or CheckUnknown
	Message string `json:"message,omitempty"` // the program's or problem daemon's message
	// Reason (PascalCase) of a problem daemon's report replaces the rule's; programs give none.
	Reason string `json:"reason,omitempty"`
	// ID distinguishes a report sent twice from two similar ones; if empty, the time does.
	ID string `json:"id,omitempty"`
}

// What a check program finds.
const (
	CheckOK      = "ok"
	CheckProblem = "problem"
	// CheckUnknown: the program reports that it does not know, or could not be run. Until its next
	// result the check counts as a source that is down, for the reason in Message.
	CheckUnknown = "unknown"
)

// Stems of the sources that have names of their own: the stem is LogStem, CheckStem or GaugeStem
// and then the name. Without a name they mean all that have reported nothing themselves.
const (
	LogStem   = string(Log)
	CheckStem = string(Check)
	GaugeStem = string(Gauge)
)

// NamedStem returns the stem of one log, check or gauge, such as "log/kmsg".
func NamedStem(family, name string) string { return family + "/" + name }

func (d *CheckData) facts(_ *Event, f *Facts) {
	f.Verdict = d.Status
	f.add("%s: %s", d.Check, d.Message)
}

func checkFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *CheckData { return e.Check }, Check)
	return []*Field{
		few(field("check", TypeString, "name of the check", func(d *CheckData) Value { return text(d.Check) })),
		field("message", TypeString, "the check's message", func(d *CheckData) Value { return text(d.Message) }),
	}
}
