package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func PodDetail(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "pod-detail",
		Doc: "Describes a pod of this node: phase, conditions, owner, quality of service, containers and their restarts, labels. Fails without an API " +
			"server or kubelet to query.",
		Effect:     operation.Collect,
		TenantSafe: true,
		Parameters: podParameters(),
		Results: append(podResults(),
			operation.Result{Name: "node", Doc: "its node"},
			operation.Result{Name: "phase", Doc: "Pending, Running, Succeeded, Failed or Unknown"},
			operation.Result{Name: "reason", Doc: "reason of the phase: Evicted, NodeLost …"},
			operation.Result{Name: "message", Doc: "its human-readable form"},
			operation.Result{Name: "conditions", Doc: "each with its status, and why it is not True"},
			operation.Result{Name: "ready", Doc: "whether it receives traffic"},
			operation.Result{Name: "owner", Doc: "its owner: ReplicaSet web-5d9c; missing: none"},
			operation.Result{Name: "qos", Doc: "Guaranteed, Burstable or BestEffort"},
			operation.Result{Name: "priority", Doc: "its priority"},
			operation.Result{Name: "hostNetwork", Doc: "whether it uses the node's network"},
			operation.Result{Name: "hostPID", Doc: "whether it uses the node's PID namespace"},
			operation.Result{Name: "restarts", Doc: "restarts of all its containers"},
			operation.Result{Name: "containers", Doc: "each with its state and restarts"},
			operation.Result{Name: "addresses", Doc: "its IP addresses"},
			operation.Result{Name: "claims", Doc: "its PersistentVolumeClaims"},
			operation.Result{Name: "labels", Doc: "its labels, as far as they fit"},
			operation.Result{Name: "created", Doc: "creation time"},
			operation.Result{Name: "deleted", Doc: "start of its deletion; missing: not being deleted"},
		),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			p, err := host(h).findPod(ctx, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			f := operation.NewFinding()
			reportPodDetail(f, p)
			return f.Output(nil), nil
		},
	}
}

func reportPodDetail(f *operation.Finding, p *corev1.Pod) {
	reportPod(f, p)
	f.Text("node", p.Spec.NodeName)
	f.Text("phase", string(p.Status.Phase))
	f.Text("reason", p.Status.Reason)
	f.Text("message", p.Status.Message)
	f.Text("conditions", podConditions(p))
	f.Bool("ready", podReady(p))
	f.Text("owner", podOwner(p))
	f.Text("qos", string(p.Status.QOSClass))
	if p.Spec.Priority != nil {
		f.Int("priority", int64(*p.Spec.Priority))
	}
	f.Bool("hostNetwork", p.Spec.HostNetwork)
	f.Bool("hostPID", p.Spec.HostPID)
	f.Int("restarts", podRestarts(p))
	var containers, addresses []string
	for _, s := range containerStatuses(p) {
		containers = append(containers, fmt.Sprintf("%s %s restarts=%d", s.Name, stateText(&s.State), s.RestartCount))
	}
	f.Text("containers", strings.Join(containers, "; "))
	for _, a := range p.Status.PodIPs {
		addresses = append(addresses, a.IP)
	}
	f.Text("addresses", strings.Join(addresses, " "))
	f.Text("claims", strings.Join(claims(p), " "))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		labels = append(labels, name+"="+p.Labels[name])
	}
	f.Text("labels", strings.Join(labels, " "))
	f.Text("created", p.CreationTimestamp.UTC().Format(time.RFC3339))
	if p.DeletionTimestamp != nil {
		f.Text("deleted", p.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
}

// podConditions formats conditions as "PodScheduled; Ready=False ContainersNotReady".
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
