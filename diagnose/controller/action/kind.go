package action

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// Kind is an operation that the controller makes.
type Kind struct {
	Done  string // reason of the Event where it was made: Cordoned
	Would string // where it was only observed: WouldCordon
	pod   bool   // it changes a pod, not the node

	// check returns a [*Refused] where it can't be made of the objects as they are.
	check func(*Actions, context.Context, *Call) error
	do    func(*Actions, context.Context, *Call) (Progress, error)
}

// KindOf returns the kind of a built-in, false where the controller does not make it.
func KindOf(builtin string) (Kind, bool) {
	k, ok := kinds()[builtin]
	return k, ok
}

func kinds() map[string]Kind {
	return map[string]Kind{
		"cordon":          {Done: "Cordoned", Would: "WouldCordon", check: (*Actions).checkNode, do: (*Actions).cordon},
		"uncordon":        {Done: "Uncordoned", Would: "WouldUncordon", check: (*Actions).checkNode, do: (*Actions).uncordon},
		"taint":           {Done: "Tainted", Would: "WouldTaint", check: (*Actions).checkTaint, do: (*Actions).taint},
		"untaint":         {Done: "Untainted", Would: "WouldUntaint", check: (*Actions).checkTaint, do: (*Actions).untaint},
		"evict-pod":       {Done: "PodEvicted", Would: "WouldEvictPod", pod: true, check: (*Actions).checkPod, do: (*Actions).endPod},
		"delete-pod":      {Done: "PodDeleted", Would: "WouldDeletePod", pod: true, check: (*Actions).checkPod, do: (*Actions).endPod},
		"drain":           {Done: "Drained", Would: "WouldDrain", check: (*Actions).checkDrain, do: (*Actions).drain},
		"label-node":      {Done: "NodeLabelled", Would: "WouldLabelNode", check: (*Actions).checkLabel, do: set(policy.KindLabel)},
		"unlabel-node":    {Done: "NodeUnlabelled", Would: "WouldUnlabelNode", check: (*Actions).checkLabel, do: unset(policy.KindLabel)},
		"annotate-node":   {Done: "NodeAnnotated", Would: "WouldAnnotateNode", check: (*Actions).checkAnnotation, do: set(policy.KindAnnotation)},
		"unannotate-node": {Done: "NodeUnannotated", Would: "WouldUnannotateNode", check: (*Actions).checkAnnotation, do: unset(policy.KindAnnotation)},
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
