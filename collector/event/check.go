package event

// CheckData is the payload of [Check]. Message is what the program printed or the
// problem daemon reported: bounded, otherwise to be trusted in nothing.
type CheckData struct {
	Check   string `json:"check"`             // name of the check, unique on the node
	Status  string `json:"status"`            // CheckOK, CheckProblem or CheckUnknown
	Message string `json:"message,omitempty"` // what it says to that
	// Reason, PascalCase, is that of a problem daemon's report, which stands in
	// place of the rule's; programs give none.
	Reason string `json:"reason,omitempty"`
	// ID tells reports that are sent twice from those that are alike; empty: it is
	// known by its time.
	ID string `json:"id,omitempty"`
}

// What a check program finds.
const (
	CheckOK      = "ok"
	CheckProblem = "problem"
	// CheckUnknown: the program can't tell, or could not be run. Until it tells
	// again the check counts as a source that is down, for the reason in Message.
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
