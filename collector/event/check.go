package event

// CheckData is the payload of [Check]. Message is what the program printed:
// bounded, otherwise to be trusted in nothing.
type CheckData struct {
	Check   string `json:"check"`             // name of the check, unique on the node
	Status  string `json:"status"`            // CheckOK, CheckProblem or CheckUnknown
	Message string `json:"message,omitempty"` // what it says to that
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
// name, a check's CheckStem and its name. Without a name they stand for every log
// or check that has not said anything itself.
const (
	LogStem   = string(Log)
	CheckStem = string(Check)
)

// NamedStem returns the stem of one log or check, such as "log/kmsg".
func NamedStem(family, name string) string { return family + "/" + name }
