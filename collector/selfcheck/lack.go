package selfcheck

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// Reason is the kind of a lack. Reasons are API: the condition has them.
type Reason string

// The reasons, the most severe first.
const (
	ProgramsNotLoaded Reason = "ProgramsNotLoaded"
	MissingHostPath   Reason = "MissingHostPath"
	DiskHangs         Reason = "DiskHangs"
	MissingRights     Reason = "MissingRights"
)

// Check is the name of the check that reports whether the agent is complete.
const Check = "kernosis/self"

// Lack is something that a part of the agent is missing.
type Lack struct {
	Part   string `json:"part"`   // "oomkill", "log/kmsg", "state"
	Reason Reason `json:"reason"` // its kind
	Lacks  string `json:"lacks"`  // "CAP_BPF, CAP_PERFMON", "/dev/kmsg"
	Why    string `json:"why"`    // the error of the trial
	Unseen string `json:"unseen"` // what is not detected because of it
}

// maxWhy bounds the error text.
const maxWhy = 200

func lack(part string, reason Reason, lacks string, err error, unseen string) *Lack {
	l := &Lack{Part: part, Reason: reason, Lacks: lacks, Unseen: unseen}
	if err != nil {
		// cilium/ebpf adds this to each EPERM.
		l.Why = display.Safe(strings.ReplaceAll(err.Error(), " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", ""), maxWhy)
	}
	return l
}

// Message returns one line with what is missing and what is not detected because of it; "" if
// nothing is missing. It groups the parts that miss the same.
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
	return "not visible " + strings.Join(parts, "; ")
}

// Worst returns the most severe reason; "" if nothing is missing.
func Worst(lacks []Lack) Reason {
	for _, r := range []Reason{ProgramsNotLoaded, MissingHostPath, DiskHangs, MissingRights} {
		if slices.ContainsFunc(lacks, func(l Lack) bool { return l.Reason == r }) {
			return r
		}
	}
	return ""
}

// Result returns the outcome as a check result, for the condition's rule.
func Result(lacks []Lack) event.CheckData {
	if len(lacks) == 0 {
		return event.CheckData{Check: Check, Status: event.CheckOK}
	}
	return event.CheckData{
		Check: Check, Status: event.CheckProblem, Reason: string(Worst(lacks)), Message: display.Safe(Message(lacks), maxMessage),
	}
}

// maxMessage is the maximum size of a condition's message.
const maxMessage = 1000
