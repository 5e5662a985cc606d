package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodDetail returns the built-in pod-detail.
func PodDetail(h Host) Builtin {
	return Builtin{
		Name: "pod-detail",
		Doc: "Tells what the API server or kubelet has of a pod of this node: phase, conditions, owner, quality of service, containers and their restarts, labels. " +
			"It fails where neither is asked.",
		Effect:     Collect,
		TenantSafe: true,
		Parameters: podParameters(),
		Results: append(podResults(),
			Result{"node", "where it runs"},
			Result{"phase", "Pending, Running, Succeeded, Failed or Unknown"},
			Result{"reason", "why it is so: Evicted, NodeLost …"},
			Result{"message", "the same for people"},
			Result{"conditions", "each with its status, and why it is not True"},
			Result{"ready", "whether it takes traffic"},
			Result{"owner", "what made it: ReplicaSet web-5d9c; missing: nothing did"},
			Result{"qos", "Guaranteed, Burstable or BestEffort"},
			Result{"priority", "its priority"},
			Result{"hostNetwork", "whether it uses the node's network"},
			Result{"hostPID", "whether it sees the node's processes"},
			Result{"restarts", "of all its containers together"},
			Result{"containers", "each with its state and restarts"},
			Result{"addresses", "its IP addresses"},
			Result{"claims", "PersistentVolumeClaims that it has"},
			Result{"labels", "its labels, as far as they fit"},
			Result{"created", "when it was made"},
			Result{"deleted", "since when it is being deleted; missing: it is not"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.pod(ctx, call.Parameters)
			if err != nil {
				return Output{}, err
			}
			f := newFinding()
			f.podDetail(p)
			return f.output(nil), nil
		},
	}
}

func (f *finding) podDetail(p *corev1.Pod) {
	f.pod(p)
	f.text("node", p.Spec.NodeName)
	f.text("phase", string(p.Status.Phase))
	f.text("reason", p.Status.Reason)
	f.text("message", p.Status.Message)
	f.text("conditions", podConditions(p))
	f.bool("ready", podReady(p))
	f.text("owner", podOwner(p))
	f.text("qos", string(p.Status.QOSClass))
	if p.Spec.Priority != nil {
		f.int("priority", int64(*p.Spec.Priority))
	}
	f.bool("hostNetwork", p.Spec.HostNetwork)
	f.bool("hostPID", p.Spec.HostPID)
	f.int("restarts", podRestarts(p))
	var containers, addresses []string
	for _, s := range containerStatuses(p) {
		containers = append(containers, fmt.Sprintf("%s %s restarts=%d", s.Name, stateText(&s.State), s.RestartCount))
	}
	f.text("containers", strings.Join(containers, "; "))
	for _, a := range p.Status.PodIPs {
		addresses = append(addresses, a.IP)
	}
	f.text("addresses", strings.Join(addresses, " "))
	f.text("claims", strings.Join(claims(p), " "))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		labels = append(labels, name+"="+p.Labels[name])
	}
	f.text("labels", strings.Join(labels, " "))
	f.text("created", p.CreationTimestamp.UTC().Format(time.RFC3339))
	if p.DeletionTimestamp != nil {
		f.text("deleted", p.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
}

// podConditions is "PodScheduled; Ready=False ContainersNotReady".
func podConditions(p *corev1.Pod) string {
	var out []string
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		text := string(c.Type)
		if c.Status != corev1.ConditionTrue {
			text = strings.TrimSpace(fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
