package start

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

// pod looks up a pod, and returns nil if there is none. The controller does not cache pods: there
// are many, and few are needed.
func (p *Part) pod(ctx context.Context, name types.NamespacedName) (*trigger.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	pod, err := p.api.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod %s/%s: %w", name.Namespace, name.Name, err)
	}
	return &trigger.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels, Node: pod.Spec.NodeName}, nil
}

// lookups returns the pods that were looked up, and the Nodes of the manager's cache.
func (p *Part) lookups(pods map[types.NamespacedName]*trigger.Pod) trigger.Known {
	return trigger.Known{
		Pod: func(namespace, name string) (*trigger.Pod, bool) {
			pod, looked := pods[types.NamespacedName{Namespace: namespace, Name: name}]
			return pod, looked
		},
		Node: func(name string) bool {
			// The cache answers at once. Only NotFound is a definite answer.
			err := p.cache.Get(context.Background(), client.ObjectKey{Name: name}, &corev1.Node{})
			return !apierrors.IsNotFound(err)
		},
	}
}
