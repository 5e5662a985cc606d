package event

// Check: a check program has run, with what it found. Not only faults: every
// result is an event; rules decide which are problems.
const Check Kind = "check"

func check() Family {
	return Family{Stem: "check", Faults: "results of checks", Kinds: []Kind{Check}, fields: checkFields}
}

// CheckData is the payload of [Check]. Message is what the program printed or the
// problem daemon reported: bounded, otherwise to be trusted in nothing.
type CheckData struct {
	Check   string `json:"check"`             // name of the check, unique on the node
	Status  string `json:"status"`            // CheckOK, CheckProblem or CheckUnknown
	Message string `json:"message,omitempty"` // what it says to that
	// Reason, PascalCase, is that of a problem daemon's report, which stands in
	// place of the rule's; programs give none.
	Reason string `json:"reason,omitempty"`
	// ID distinguishes a report sent twice from two similar reports. If it is empty, the
	// time identifies the report.
	ID string `json:"id,omitempty"`
}

// What a check program finds.
const (
	CheckOK      = "ok"
	CheckProblem = "problem"
	// CheckUnknown: the program reports that it does not know, or could not be run. Until its
	// next result the check counts as a source that is down, for the reason in Message.
	CheckUnknown = "unknown"
)

// Stems of the sources that have names of their own: a log's is LogStem and its
// name, a check's CheckStem and its name, a gauge's GaugeStem and its name. Without a
// name they stand for every log, check or gauge that has not said anything itself.
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
	of := func(e *Event) *CheckData { return e.Check }
	return []*Field{
		{Name: "event.check", Type: TypeString, Kinds: []Kind{Check}, Few: true, Doc: "name of the check",
			Read: part(of, func(d *CheckData) Value { return text(d.Check) })},
		{Name: "event.message", Type: TypeString, Kinds: []Kind{Check}, Doc: "the check's message",
			Read: part(of, func(d *CheckData) Value { return text(d.Message) })},
	}
}
