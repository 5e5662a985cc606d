package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// podsEvery is how often it is looked whether pods are gone: that takes seconds.
const podsEvery = time.Second

// controllerPods selects those that the chart makes.
const controllerPods = "app.kubernetes.io/name=kernosis,app.kubernetes.io/component=controller"

// workload is a DaemonSet or Deployment with its pods.
type workload struct {
	what string // "DaemonSet kernosis-agent"
	pods string // label selector where the workload is not there to report it
	// get returns UID and selector.
	get    func(context.Context) (types.UID, *metav1.LabelSelector, error)
	delete func(context.Context, metav1.DeleteOptions) error
}

func (u *uninstall) agents() workload {
	api := u.client.AppsV1().DaemonSets(u.Namespace)
	return workload{
		what: "DaemonSet " + u.DaemonSet, pods: liveness.DefaultPods,
		get: func(ctx context.Context) (types.UID, *metav1.LabelSelector, error) {
			d, err := api.Get(ctx, u.DaemonSet, metav1.GetOptions{})
			if err != nil {
				return "", nil, err
			}
			return d.UID, d.Spec.Selector, nil
		},
		delete: func(ctx context.Context, o metav1.DeleteOptions) error { return api.Delete(ctx, u.DaemonSet, o) },
	}
}

func (u *uninstall) controller() workload {
	api := u.client.AppsV1().Deployments(u.Namespace)
	return workload{
		what: "Deployment " + u.Deployment, pods: controllerPods,
		get: func(ctx context.Context) (types.UID, *metav1.LabelSelector, error) {
			d, err := api.Get(ctx, u.Deployment, metav1.GetOptions{})
			if err != nil {
				return "", nil, err
			}
			return d.UID, d.Spec.Selector, nil
		},
		delete: func(ctx context.Context, o metav1.DeleteOptions) error { return api.Delete(ctx, u.Deployment, o) },
	}
}

// stop deletes a workload and waits until none of its pods runs.
func (u *uninstall) stop(ctx context.Context, w workload) error {
	var uid types.UID
	var selector *metav1.LabelSelector
	err := retry(ctx, func(ctx context.Context) (err error) {
		uid, selector, err = w.get(ctx)
		return err
	})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("%s: %w", w.what, err)
	}
	pods, there := w.pods, err == nil
	if there {
		pods = metav1.FormatLabelSelector(selector)
		background := metav1.DeletePropagationBackground
		o := metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}}
		err := retry(ctx, func(ctx context.Context) error {
			err := w.delete(ctx, o)
			if apierrors.IsConflict(err) {
				return &permanentError{fmt.Errorf("somebody has made it anew: %w", err)}
			}
			return ignoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.what, err)
		}
	}
	ended, silent, err := u.awaitPods(ctx, pods)
	if err != nil {
		return fmt.Errorf("%s: %w", w.what, err)
	}
	switch {
	case there:
		u.Say(fmt.Sprintf("%s is deleted, %d pods have ended", w.what, ended))
	case ended > 0:
		u.Say(fmt.Sprintf("%s was deleted before, its last %d pods are gone", w.what, ended))
	default:
		u.Say(w.what + " was not there")
	}
	for _, pod := range silent {
		u.Say(fmt.Sprintf("pod %s on node %s is not waited for: the node is not ready, and runs it perhaps", pod.Name, pod.Spec.NodeName))
	}
	return nil
}

// awaitPods waits until no pod runs but on Nodes that are not ready; those are returned,
// and how many have ended meanwhile.
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
				continue // bound to none: it does not run
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
		return fmt.Sprintf("%d pods still run: %s", len(names), display.List(names, shown))
	})
	return ended, silent, err
}

// running returns the pods that have not ended.
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
				// What else there is of it is not needed.
				out = append(out, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}})
			}
		}
		return page.Continue, nil
	})
	return out, err
}

// ready reports whether a Node's kubelet says that it is; one that is gone is not.
func (u *uninstall) ready(ctx context.Context, name string) (is bool, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		n, err := u.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return ignoreNotFound(err)
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
