package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// readTimeout bounds one request, because the caller waits for it.
const readTimeout = 10 * time.Second

// Reader requests complete pods of one node from the API server, on each call: they are needed seldom,
// and are too big to keep. It is safe for concurrent use. It needs permission to get and list pods.
type Reader struct {
	Client kubernetes.Interface
	Node   string
}

// Pod returns the current state of a pod of the node. A pod of another node is an error, even if
// the agent may read it: nothing of it is on this node.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, err := r.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	case p.Spec.NodeName == "":
		return nil, fmt.Errorf("pod %s/%s is on no node yet", namespace, name)
	case p.Spec.NodeName != r.Node:
		return nil, fmt.Errorf("pod %s/%s is on node %s, not on %s", namespace, name, p.Spec.NodeName, r.Node)
	}
	return p, nil
}

// All returns the pods of the node from the API server's cache, as kubelet does, because that
// costs etcd nothing.
func (r *Reader) All(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := r.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.Node).String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", r.Node, err)
	}
	return list.Items, nil
}
