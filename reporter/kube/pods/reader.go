package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// readTimeout bounds one question: who asks waits for the answer.
const readTimeout = 10 * time.Second

// Reader asks the API server for the pods of one node, whole, each time anew: they are
// wanted seldom, and are too much to be kept. It is safe for concurrent use. It needs the
// rights to get and list pods.
type Reader struct {
	client kubernetes.Interface
	node   string
}

// NewReader returns a Reader.
func NewReader(client kubernetes.Interface, node string) (*Reader, error) {
	if client == nil || node == "" {
		return nil, errors.New("read pods: client and node are needed")
	}
	return &Reader{client: client, node: node}, nil
}

// Pod returns a pod of the node, as it is now. One of another node is an error, though the
// agent may read it: nothing of it is here.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	case p.Spec.NodeName == "":
		return nil, fmt.Errorf("pod %s/%s is on no node yet", namespace, name)
	case p.Spec.NodeName != r.node:
		return nil, fmt.Errorf("pod %s/%s is on node %s, not on %s", namespace, name, p.Spec.NodeName, r.node)
	}
	return p, nil
}

// All returns the pods of the node, as the API server's cache has them: kubelet asks in the
// same way, for it costs etcd nothing.
func (r *Reader) All(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := r.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.node).String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", r.node, err)
	}
	return list.Items, nil
}
