package action

import (
	"context"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// Kind is an operation that the controller runs.
type Kind struct {
	Done  string // reason of the Event after it was run: Cordoned
	Would string // reason of the Event in a dry run: WouldCordon
	pod   bool   // it changes a pod, not the node

	// check returns a [*Refused] if it can't be run on the current objects.
	check func(*Actions, context.Context, *Call) error
	do    func(*Actions, context.Context, *Call) (Progress, error)
}

// KindOf returns the kind of a built-in, or false if the controller does not run it.
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

// Target returns a human-readable name of what a repair changes.
func (k Kind) Target(node string, v operation.Values) string {
	if k.pod && v["podName"] != "" {
		return "pod " + v["podNamespace"] + "/" + v["podName"]
	}
	return "node " + node
}

// Gentle reports whether a repair leaves the pods of its node alone, as far as Kubernetes and
// Kernosis act on it. A label or annotation is not gentle: it may be another program's signal to
// reboot. values may be partial; an unknown value counts as not gentle.
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
