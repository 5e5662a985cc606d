package selfcheck

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// Reason says of which kind a lack is. Reasons are API: those of the condition.
type Reason string

// The reasons, the most grave first.
const (
	ProgramsNotLoaded Reason = "ProgramsNotLoaded"
	MissingHostPath   Reason = "MissingHostPath"
	DiskHangs         Reason = "DiskHangs"
	MissingRights     Reason = "MissingRights"
)

// Check is the name of the check that reports whether the agent is complete.
const Check = "kernosis/self"

// Lack is what one part of the agent lacks.
type Lack struct {
	Part   string `json:"part"`   // "oomkill", "log/kmsg", "state"
	Reason Reason `json:"reason"` // of which kind
	Lacks  string `json:"lacks"`  // "CAP_BPF, CAP_PERFMON", "/dev/kmsg"
	Why    string `json:"why"`    // the error of the trial
	Unseen string `json:"unseen"` // what is not seen for it
}

// maxWhy bounds an error that is shown.
const maxWhy = 200

func lack(part string, reason Reason, lacks string, err error, unseen string) *Lack {
	l := &Lack{Part: part, Reason: reason, Lacks: lacks, Unseen: unseen}
	if err != nil {
		// cilium/ebpf adds this to each EPERM.
		l.Why = display.Safe(strings.ReplaceAll(err.Error(), " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", ""), maxWhy)
	}
	return l
}

// Message says in one line what is lacking and what is therefore not seen; "" where
// nothing is. What lacks the same stands together.
func Message(lacks []Lack) string {
	var order []string
	unseen := map[string][]string{}
	for _, l := range lacks {
		if unseen[l.Lacks] == nil {
			order = append(order, l.Lacks)
		}
		if !slices.Contains(unseen[l.Lacks], l.Unseen) {
			unseen[l.Lacks] = append(unseen[l.Lacks], l.Unseen)
		}
	}
	parts := make([]string, len(order))
	for i, what := range order {
		parts[i] = "without " + what + ": " + strings.Join(unseen[what], ", ")
	}
	if len(parts) == 0 {
		return ""
	}
	return "not seen " + strings.Join(parts, "; ")
}

// Worst returns the most grave reason; "" where nothing is lacking.
func Worst(lacks []Lack) Reason {
	for _, r := range []Reason{ProgramsNotLoaded, MissingHostPath, DiskHangs, MissingRights} {
		if slices.ContainsFunc(lacks, func(l Lack) bool { return l.Reason == r }) {
			return r
		}
	}
	return ""
}

// Result returns the outcome as that of a check, for the rule of the condition.
func Result(lacks []Lack) event.CheckData {
	if len(lacks) == 0 {
		return event.CheckData{Check: Check, Status: event.CheckOK}
	}
	return event.CheckData{
		Check: Check, Status: event.CheckProblem, Reason: string(Worst(lacks)), Message: display.Safe(Message(lacks), maxMessage),
	}
}

// maxMessage is what a condition holds.
const maxMessage = 1000
