package action

import (
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/node"
)

// Kind says how an operation that the controller makes is reported to people.
type Kind struct {
	Done  string // reason of the Event where it was made: Cordoned
	Would string // where it was only observed: WouldCordon
	pod   bool   // it changes a pod, not the node
}

// KindOf returns the kind of a built-in, false where the controller does not make it.
func KindOf(builtin string) (Kind, bool) {
	switch builtin {
	case "cordon":
		return Kind{Done: "Cordoned", Would: "WouldCordon"}, true
	case "uncordon":
		return Kind{Done: "Uncordoned", Would: "WouldUncordon"}, true
	case "taint":
		return Kind{Done: "Tainted", Would: "WouldTaint"}, true
	case "untaint":
		return Kind{Done: "Untainted", Would: "WouldUntaint"}, true
	case "evict-pod":
		return Kind{Done: "PodEvicted", Would: "WouldEvictPod", pod: true}, true
	case "delete-pod":
		return Kind{Done: "PodDeleted", Would: "WouldDeletePod", pod: true}, true
	case "drain":
		return Kind{Done: "Drained", Would: "WouldDrain"}, true
	case "label-node":
		return Kind{Done: "NodeLabelled", Would: "WouldLabelNode"}, true
	case "unlabel-node":
		return Kind{Done: "NodeUnlabelled", Would: "WouldUnlabelNode"}, true
	case "annotate-node":
		return Kind{Done: "NodeAnnotated", Would: "WouldAnnotateNode"}, true
	case "unannotate-node":
		return Kind{Done: "NodeUnannotated", Would: "WouldUnannotateNode"}, true
	default:
		return Kind{}, false
	}
}

// Target names for people what a repair changes.
func (k Kind) Target(node string, v operation.Values) string {
	if k.pod && v["podName"] != "" {
		return "pod " + v["podNamespace"] + "/" + v["podName"]
	}
	return "node " + node
}

// Gentle reports whether a repair leaves the pods of its node alone, as far as it and
// those who watch for it go: a label or annotation may be another program's signal to
// reboot. values may be partial; what isn't known isn't gentle.
func Gentle(builtin string, values map[string]string) bool {
	switch builtin {
	case "cordon", "uncordon", "untaint":
		return true
	case "taint":
		e := values["effect"]
		return e == node.TaintNoSchedule || e == node.TaintPreferNoSchedule
	default:
		return false
	}
}
