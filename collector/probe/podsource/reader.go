package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/probe/podspec"
)

// ErrNoPod is returned for a pod that kubelet does not have: it is gone, or on another node.
// While kubelet starts, it has pods of the API server only after some seconds.
var ErrNoPod = errors.New("kubelet has no such pod on this node") //nolint:gochecknoglobals // a constant

// Reader requests complete pods from kubelet, on each call: they are needed seldom, and are too
// big to keep. It is safe for concurrent use.
//
// Static pods are returned as kubelet has them: with the UID from kubelet, not that of their
// mirror pod in the API.
type Reader struct{ kubelet *Asker }

// NewReader checks the configuration and returns a Reader. It ignores Sink and Log.
func NewReader(cfg KubeletConfig) (*Reader, error) {
	kubelet, err := NewAsker(cfg)
	if err != nil {
		return nil, err
	}
	return &Reader{kubelet}, nil
}

// Pod returns a pod, or [ErrNoPod]. If two pods have the name, it prefers one of the API server
// to a static pod, and then the newest: kubelet learns of a pod's end only a moment later.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var found *corev1.Pod
	err := r.each(ctx, func(p *corev1.Pod) {
		if p.Namespace == namespace && p.Name == name && (found == nil || succeeds(p, found)) {
			found = p
		}
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNoPod)
	}
	return found, nil
}

// succeeds reports whether p is preferred to another pod of the same name.
func succeeds(p, other *corev1.Pod) bool {
	if static := podspec.Is(&p.ObjectMeta); static != podspec.Is(&other.ObjectMeta) {
		return !static
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

// All returns all pods.
func (r *Reader) All(ctx context.Context) (all []corev1.Pod, err error) {
	err = r.each(ctx, func(p *corev1.Pod) { all = append(all, *p) })
	return all, err
}

func (r *Reader) each(ctx context.Context, do func(*corev1.Pod)) error {
	resp, err := r.kubelet.Get(ctx, podsPage)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = eachPod(resp.Body, maxAnswer, func(dec *json.Decoder, _ int) error {
		p := &corev1.Pod{}
		if err := dec.Decode(p); err != nil {
			return err
		}
		do(p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("kubelet's pods: %w", err)
	}
	return nil
}
