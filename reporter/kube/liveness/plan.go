package liveness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// change is one condition of a patch. Omitted fields stay as they are: the time of the last
// heartbeat is the agent's.
type change struct {
	Patch   string                 `json:"$patch,omitempty"` // "delete", with only the type
	Type    string                 `json:"type"`
	Status  corev1.ConditionStatus `json:"status,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	// Since is set only if the status changes.
	Since *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// plan returns the changes to write to a Node, in the order of types.
func plan(s state, o *observation, has []corev1.NodeCondition, common []string, now time.Time) []change {
	var out []change
	switch s {
	case stateSilent:
		for _, t := range o.types {
			out = unknown(out, t, o.renewTime, has, now)
		}
	case stateNever:
		for _, t := range common {
			if find(has, t) == nil {
				out = append(out, change{
					Type: t, Status: corev1.ConditionUnknown, Reason: lease.ReasonNeverUpdated,
					Message: "the agent's pod is on the node, but the agent has never reported", Since: new(metav1.NewTime(now)),
				})
			}
		}
	case stateStarting:
		return nil
	case stateNone:
		out = remains(o, has)
	case stateReporting, stateDraining, stateLate:
	}
	if s != stateNever {
		out = append(out, leftovers(o, has)...)
	}
	out = slices.DeleteFunc(out, func(c change) bool { return conditions.CheckType(c.Type) != nil })
	slices.SortFunc(out, func(a, b change) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// unknown appends the change that makes one type of a silent agent Unknown, if one is needed.
func unknown(out []change, t string, renewTime time.Time, has []corev1.NodeCondition, now time.Time) []change {
	c := change{
		Type: t, Status: corev1.ConditionUnknown, Reason: lease.ReasonUnknown,
		Message: fmt.Sprintf("the node's agent has not reported since %s", renewTime.UTC().Format(time.RFC3339)),
	}
	old := find(has, t)
	if old == nil || old.Reason == lease.ReasonNeverUpdated {
		c.Reason, c.Message = lease.ReasonNeverUpdated, "the node's agent has this condition, but has never reported it"
	}
	if old != nil && old.Status == c.Status && old.Reason == c.Reason && (old.Message == c.Message || c.Reason == lease.ReasonNeverUpdated) {
		return out
	}
	if old == nil || old.Status != c.Status {
		c.Since = new(metav1.NewTime(now))
	}
	return append(out, c)
}

// remains returns the removal of an agent's conditions from a node that no longer has an agent.
// Conditions written after the agent's end belong to another client.
func remains(o *observation, has []corev1.NodeCondition) (out []change) {
	if !o.reports() {
		return nil
	}
	for _, t := range o.types {
		c := find(has, t)
		if c == nil {
			continue
		}
		ours := c.Reason == lease.ReasonUnknown || c.Reason == lease.ReasonNeverUpdated
		if ours || !c.LastHeartbeatTime.IsZero() && c.LastHeartbeatTime.Before(new(metav1.NewTime(o.renewTime.Add(lastWrites)))) {
			out = append(out, change{Patch: "delete", Type: t})
		}
	}
	return out
}

// lastWrites is how long an agent may write conditions after its last renewal while it ends.
const lastWrites = time.Minute

// leftovers returns the removal of conditions that we have set for an agent that had never
// reported, and that it does not list.
func leftovers(o *observation, has []corev1.NodeCondition) (out []change) {
	for _, c := range has {
		if c.Reason == lease.ReasonNeverUpdated && !(o.reports() && slices.Contains(o.types, string(c.Type))) {
			out = append(out, change{Patch: "delete", Type: string(c.Type)})
		}
	}
	return out
}

// encode returns the patch. It has the resource version, so it fails if the Node has changed.
func encode(resourceVersion string, changes []change) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": resourceVersion},
		"status":   map[string]any{"conditions": changes},
	})
}

func find(has []corev1.NodeCondition, t string) *corev1.NodeCondition {
	for i := range has {
		if string(has[i].Type) == t {
			return &has[i]
		}
	}
	return nil
}
