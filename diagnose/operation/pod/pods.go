package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// host is the node.
type host operation.Host

// errNoPods is returned if there is no source of pods.
var errNoPods = errors.New("pods are unavailable: neither the API server nor kubelet is queried")

// podParameters returns the parameters that name a pod.
func podParameters() []operation.Parameter {
	return []operation.Parameter{
		{Name: "podNamespace", Doc: "namespace of the pod", Kind: operation.String, Max: 63},
		{Name: "podName", Doc: "name of the pod", Kind: operation.String, Max: 253},
		{Name: "podUID", Doc: "UID of the pod; with a name: a pod with that name and another UID is refused; alone: selects the pod among those of the node", Kind: operation.String, Max: 64},
	}
}

// podResults returns the results that reportPod sets.
func podResults() []operation.Result {
	return []operation.Result{
		{Name: "podNamespace", Doc: "namespace of the pod"},
		{Name: "podName", Doc: "name of the pod"},
		{Name: "podUID", Doc: "UID of the pod"},
	}
}

func reportPod(f *operation.Finding, p *corev1.Pod) {
	f.Text("podNamespace", p.Namespace)
	f.Text("podName", p.Name)
	f.Text("podUID", string(p.UID))
}

// findPod returns the pod that the parameters name.
func (h host) findPod(ctx context.Context, v operation.Values) (*corev1.Pod, error) {
	if h.Pods == nil {
		return nil, errNoPods
	}
	namespace, name, uid := v["podNamespace"], v["podName"], v["podUID"]
	if namespace != "" && name != "" {
		p, err := h.Pods.Pod(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		if uid != "" && !slices.Contains(pods.UIDs(&p.ObjectMeta), uid) {
			return nil, fmt.Errorf("pod %s/%s is gone: the pod of that name now has the UID %s", operation.Quoted(namespace), operation.Quoted(name), p.UID)
		}
		return p, nil
	}
	if uid == "" {
		return nil, errors.New("parameter podUID, or podNamespace and podName, is required")
	}
	all, err := h.Pods.All(ctx)
	if err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range all {
		m := &all[i].ObjectMeta
		if slices.Contains(pods.UIDs(m), uid) && (found == nil || pods.Precedes(m, &found.ObjectMeta, uid)) {
			found = &all[i]
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("this node has no pod with the UID %s", operation.Quoted(uid))
}

// claims returns the PersistentVolumeClaims of a pod, with its namespace. The name of an ephemeral
// volume's claim starts with the pod's name.
func claims(p *corev1.Pod) []string {
	var out []string
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, p.Namespace+"/"+p.Name+"-"+v.Name)
		}
	}
	return out
}

// podOwner returns the object that controls a pod: "ReplicaSet web-5d9c"; empty: none.
func podOwner(p *corev1.Pod) string {
	if o := metav1.GetControllerOf(p); o != nil {
		return o.Kind + " " + o.Name
	}
	return ""
}

// podReady reports whether a pod receives traffic.
func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podRestarts returns the restarts of all containers.
func podRestarts(p *corev1.Pod) (n int64) {
	for _, s := range containerStatuses(p) {
		n += int64(s.RestartCount)
	}
	return n
}

// containerStatuses returns the statuses of all containers, regular ones first.
func containerStatuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses)
}

// stateText formats a container's state: "running", "waiting CrashLoopBackOff", "terminated
// OOMKilled (exit code 137)".
func stateText(s *corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return strings.TrimSpace("terminated "+s.Terminated.Reason) + " (exit code " + strconv.Itoa(int(s.Terminated.ExitCode)) + ")"
	case s.Waiting != nil:
		return strings.TrimSpace("waiting " + s.Waiting.Reason)
	}
	return "unknown"
}
