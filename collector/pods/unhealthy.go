package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/observe"
)

const (
	// reason is the reason of kubelet's Events about failed probes.
	reason = "Unhealthy"
	// maxEvents is how many Events of a pod are read: it has few probes, each with few messages.
	maxEvents = 200
)

// Events reads Events about probes. It is safe for concurrent use. It needs permission to list events.
type Events struct{ Client kubernetes.Interface }

var _ observe.Words = (*Events)(nil)

// Unhealthy returns kubelet's messages about the pod's probes, the newest first.
func (e *Events) Unhealthy(ctx context.Context, namespace, podUID string) ([]observe.Unhealthy, error) {
	list, err := e.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": podUID, "reason": reason}.String(),
		// From the server's cache: etcd would read all Events of the namespace.
		ResourceVersion: "0", Limit: maxEvents,
	})
	if err != nil {
		return nil, fmt.Errorf("list events of pod %s in %s: %w", podUID, namespace, err)
	}
	out := make([]observe.Unhealthy, 0, len(list.Items))
	for i := range list.Items {
		if u, ok := read(&list.Items[i]); ok {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b observe.Unhealthy) int { return b.At.Compare(a.At) })
	return out, nil
}

// read extracts the message about a probe from an Event.
func read(e *corev1.Event) (observe.Unhealthy, bool) {
	u := observe.Unhealthy{PodUID: string(e.InvolvedObject.UID), Message: e.Message}
	u.At, u.Count = LastOccurrence(e)
	u.Count = max(1, u.Count)
	var ok bool
	if u.Container, ok = containerOf(e.InvolvedObject.FieldPath); !ok {
		return u, false
	}
	kind, _, ok := strings.Cut(e.Message, " probe ")
	if u.Kind = probe.Kind(strings.ToLower(kind)); !ok || !slices.Contains(probe.Kinds(), u.Kind) {
		return u, false
	}
	u.At = u.At.Round(0).In(time.UTC)
	return u, true
}

// LastOccurrence returns the time of the last occurrence that an Event reports, and the number of
// occurrences. The fields differ between core/v1 and events.k8s.io.
func LastOccurrence(e *corev1.Event) (at time.Time, count int) {
	at, count = e.LastTimestamp.Time, int(e.Count)
	if s := e.Series; s != nil {
		at, count = s.LastObservedTime.Time, int(s.Count)
	}
	for _, other := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
		if at.IsZero() {
			at = other
		}
	}
	return at, count
}

// containerOf parses "spec.containers{app}" and "spec.initContainers{app}".
func containerOf(path string) (string, bool) {
	list, name, ok := strings.Cut(path, "{")
	if !ok || list != "spec.containers" && list != "spec.initContainers" {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}
