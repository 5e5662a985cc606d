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

// ours reports whether a field manager writes conditions for Kernosis.
func ours(manager string) bool {
	return manager == conditions.FieldManager || manager == lease.Controller
}

// leftover returns which conditions of a Node belong to Kernosis. l is the Lease of the Node's
// agent, or nil. The owner of a condition is the writer of its heartbeat, because every write of an
// agent includes the heartbeat; other fields may be left from another writer. Conditions that the
// controller has written keep the agent's heartbeat, and are recognised by their reasons.
//
// An agent corrects conditions of its Lease's types if others change them, but does not write a
// condition that is already correct. So these conditions are ours too, unless somebody has written
// them after the last renewal of the Lease. leftover returns these as foreign: "Type
// (manager)".
//
// Kubernetes' own conditions are in neither list.
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

// lastHeartbeat returns the latest heartbeat of a Node's conditions that Kernosis wrote last; zero:
// there is none.
func lastHeartbeat(n *corev1.Node) (latest time.Time) {
	writers := heartbeats(n)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if writers[string(c.Type)].ours && c.LastHeartbeatTime.After(latest) {
			latest = c.LastHeartbeatTime.Time
		}
	}
	return latest
}

// writer is the last writer of a condition's lastHeartbeatTime.
type writer struct {
	manager string
	ours    bool
	at      time.Time // of its last write of the Node, in whole seconds; zero: unknown
}

// heartbeats returns the last writer of each condition.
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
			// Several managers own the field if they wrote the same value.
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
