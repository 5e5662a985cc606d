package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
)

// podsEvery is how often to check whether pods are gone, which takes seconds.
const podsEvery = time.Second

// controllerPods selects the controller pods created by the chart.
const controllerPods = "app.kubernetes.io/name=kernosis,app.kubernetes.io/component=controller"

// workload is a DaemonSet or Deployment with its pods.
type workload[W metav1.Object] struct {
	kind, name string
	api        interface {
		Get(ctx context.Context, name string, o metav1.GetOptions) (W, error)
		Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
	}
	selector func(W) *metav1.LabelSelector // of the workload's pods
	pods     string                        // selector to use if the workload does not exist
}

// stop deletes a workload and waits until all its pods have stopped. It returns whether there was a
// workload or pod.
func (w *workload[W]) stop(ctx context.Context, u *uninstall) (found bool, err error) {
	what := w.kind + " " + w.name
	var known W
	err = retry(ctx, func(ctx context.Context) (err error) {
		known, err = w.api.Get(ctx, w.name, metav1.GetOptions{})
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	pods, there := w.pods, err == nil
	if there {
		pods = metav1.FormatLabelSelector(w.selector(known))
		uid, background := known.GetUID(), metav1.DeletePropagationBackground
		o := metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}}
		err := retry(ctx, func(ctx context.Context) error {
			err := w.api.Delete(ctx, w.name, o)
			if apierrors.IsConflict(err) {
				return &permanentError{fmt.Errorf("it was recreated meanwhile: %w", err)}
			}
			return client.IgnoreNotFound(err)
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
	}
	ended, silent, err := u.awaitPods(ctx, pods)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case there:
		u.Say(fmt.Sprintf("%s is deleted, %d pods have stopped", what, ended))
	case ended > 0:
		u.Say(fmt.Sprintf("%s was already deleted, its last %d pods have stopped", what, ended))
	default:
		u.Say(what + " was not found")
	}
	for _, pod := range silent {
		u.Say(fmt.Sprintf("not waiting for pod %s on node %s: the node is not ready, and may still run it", pod.Name, pod.Spec.NodeName))
	}
	return there || ended+len(silent) > 0, nil
}

// awaitPods waits until pods run only on Nodes that are not ready. It returns those pods, and how
// many others have ended meanwhile.
func (u *uninstall) awaitPods(ctx context.Context, selector string) (ended int, silent []corev1.Pod, err error) {
	var running []corev1.Pod
	first, atFirst := true, 0
	err = every(ctx, podsEvery, func(ctx context.Context) (bool, error) {
		var err error
		if running, err = u.running(ctx, selector); err != nil {
			return false, err
		}
		if first {
			first, atFirst = false, len(running)
		}
		ready := map[string]bool{}
		for i := range running {
			node := running[i].Spec.NodeName
			if node == "" {
				continue // not scheduled, so it does not run
			}
			if _, known := ready[node]; !known {
				if ready[node], err = u.ready(ctx, node); err != nil {
					return false, err
				}
			}
			if ready[node] {
				return false, nil
			}
		}
		ended = max(0, atFirst-len(running))
		silent = slices.DeleteFunc(running, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
		return true, nil
	}, func() string {
		names := make([]string, len(running))
		for i := range running {
			names[i] = running[i].Name + " on " + running[i].Spec.NodeName
		}
		return fmt.Sprintf("%d pods are still running: %s", len(names), display.List(names, shown))
	})
	return ended, silent, err
}

// running returns the pods that have not terminated.
func (u *uninstall) running(ctx context.Context, selector string) (out []corev1.Pod, err error) {
	err = pages(ctx, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		o.LabelSelector = selector
		page, err := u.client.CoreV1().Pods(u.Namespace).List(ctx, o)
		if err != nil {
			return "", fmt.Errorf("pods: %w", err)
		}
		for i := range page.Items {
			p := &page.Items[i]
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				// The other fields are not needed.
				out = append(out, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}})
			}
		}
		return page.Continue, nil
	})
	return out, err
}

// ready reports whether a Node is Ready; a deleted one is not.
func (u *uninstall) ready(ctx context.Context, name string) (is bool, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		n, err := u.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		is = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("node %s: %w", name, err)
	}
	return is, nil
}
