package install

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// ours are the field managers that write conditions for Kernosis.
func ours(manager string) bool {
	return manager == conditions.FieldManager || manager == lease.Controller
}

// leftover returns which conditions of a Node are of Kernosis. l is the Lease of its
// agent; nil: there is none. Who has a condition now is reported by its heartbeat, which is in
// each write of an agent: what else it says may be as somebody else has left it. The
// controller's keep that of the agent, and are known by their reasons.
//
// An agent puts right what others write over the types of its Lease, and does not write
// what says the same already: those are its own too, unless somebody has written them since
// the Lease was renewed last. foreign are those: "Type (manager)".
//
// Kubernetes' own are neither.
func leftover(n *corev1.Node, l *leaseOf) (types, foreign []string) {
	writers := heartbeats(n)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		t := string(c.Type)
		if conditions.CheckType(t) != nil {
			continue
		}
		w, written := writers[t]
		listed := l != nil && slices.Contains(l.types, t)
		switch {
		case t == conditions.Contested, c.Reason == lease.ReasonUnknown, c.Reason == lease.ReasonNeverUpdated,
			w.ours, listed && (!written || w.at.Before(l.renewed)):
			types = append(types, t)
		case listed:
			foreign = append(foreign, t+" ("+w.manager+")")
		}
	}
	return types, foreign
}

// writer is who has written a condition's lastHeartbeatTime.
type writer struct {
	manager string
	ours    bool
	at      time.Time // of its last write of the Node, in whole seconds; zero: unknown
}

// heartbeats returns who has written each condition last.
func heartbeats(n *corev1.Node) map[string]writer {
	out := make(map[string]writer, len(n.Status.Conditions))
	for i := range n.ManagedFields {
		m := &n.ManagedFields[i]
		if m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Conditions map[string]map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key, of := range fields.Status.Conditions {
			var id struct {
				Type string `json:"type"`
			}
			text, ok := strings.CutPrefix(key, "k:")
			if _, beats := of["f:lastHeartbeatTime"]; !ok || !beats || json.Unmarshal([]byte(text), &id) != nil {
				continue
			}
			// Several have it where they have written the same.
			w := out[id.Type]
			w.ours = w.ours || ours(m.Manager)
			if m.Time != nil && m.Time.After(w.at) || w.manager == "" {
				w.manager = m.Manager
				if m.Time != nil {
					w.at = m.Time.Time
				}
			}
			out[id.Type] = w
		}
	}
	return out
}
