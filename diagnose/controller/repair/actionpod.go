package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func (a *Actions) checkPod(ctx context.Context, c *Call) error {
	p, err := a.pod(ctx, c)
	if err == nil && p == nil {
		return refuse("pod %s is gone", podName(c))
	}
	return err
}

func podName(c *Call) string { return c.Values["podNamespace"] + "/" + c.Values["podName"] }

// pod returns the current pod that the Diagnosis is about, or nil if it is gone, even if another
// pod has its name now.
func (a *Actions) pod(ctx context.Context, c *Call) (*corev1.Pod, error) {
	namespace, name, uid := c.Values["podNamespace"], c.Values["podName"], types.UID(c.Values["podUID"])
	if about := c.Diagnosis.Pod(); about.Name != "" && (about.Namespace != namespace || about.Name != name) {
		return nil, refuse("the Diagnosis is about pod %s, not about %s", about, podName(c))
	}
	p, err := a.api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod %s: %w", podName(c), err)
	case uid != "" && p.UID != uid, uid == "" && !p.CreationTimestamp.Time.Before(c.Diagnosis.CreationTimestamp.Time):
		if c.Before != nil {
			return nil, nil
		}
		return nil, refuse("pod %s was recreated: it is not the one that the Diagnosis is about", podName(c))
	case p.Spec.NodeName != c.node():
		return nil, refuse("pod %s is on %s, not on the Diagnosis' node %s", podName(c), onNode(p), c.node())
	}
	if why := a.untouchable(p); why != "" {
		return nil, refuse("pod %s %s", podName(c), why)
	}
	return p, nil
}

func onNode(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return "no node"
	}
	return "node " + p.Spec.NodeName
}

// untouchable returns why a pod must never be evicted or deleted, or "" if it may be.
func (a *Actions) untouchable(p *corev1.Pod) string {
	switch {
	case mirror(p):
		return "is static: the node runs it from a file"
	case a.own(p):
		return "belongs to Kernosis itself"
	case a.neighbour(p):
		return "is " + neighbourhood
	}
	return ""
}

func mirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func (a *Actions) own(p *corev1.Pod) bool {
	return p.Namespace == a.config.Namespace &&
		slices.ContainsFunc(a.ownPods, func(s labels.Selector) bool { return s.Matches(labels.Set(p.Labels)) })
}

// neighbour reports whether a foreign pod is in the namespace of Kernosis. There the chart's
// admission policy forbids the controller all evictions, because an eviction does not show which
// pod it is for.
func (a *Actions) neighbour(p *corev1.Pod) bool {
	return p.Namespace == a.config.Namespace && !a.own(p)
}

const neighbourhood = "in the namespace of Kernosis, where pods are never evicted or deleted (install Kernosis in a namespace of its own)"

// endPod evicts or deletes the pod, and waits until it is gone.
func (a *Actions) endPod(ctx context.Context, c *Call) (Progress, error) {
	done := Progress{State: v1alpha1.ResultSucceeded, Message: "pod " + podName(c) + " is gone", Values: map[string]string{"pod": podName(c)}}
	p, err := a.pod(ctx, c)
	switch {
	case err != nil:
		return Progress{}, err
	case p == nil && c.Before == nil:
		return Progress{}, refuse("pod %s was gone before the repair began", podName(c))
	case p == nil:
		return done, nil
	}
	waits := "pod " + podName(c) + " is terminating"
	if p.DeletionTimestamp == nil {
		gone, blocked, err := a.end(ctx, c, p)
		switch {
		case err != nil:
			return Progress{}, err
		case gone:
			return done, nil
		case blocked != "":
			waits = "pod " + podName(c) + ": " + blocked
		}
	}
	return a.later(c, waits, nil), nil
}

// later asks for another pass, or fails the repair after its timeout.
func (a *Actions) later(c *Call, waits string, values map[string]string) Progress {
	timeout := c.Values.Duration("timeout")
	past := a.config.Now().Sub(c.Began)
	left := timeout - past
	if left <= 0 {
		return Progress{State: v1alpha1.ResultFailed, Message: fmt.Sprintf("not done after %s: %s", timeout, waits), Values: values}
	}
	// The pause grows, so that a drain that hangs for an hour does not keep querying the API server.
	pause := min(max(a.config.Look, past/4), longestLook*a.config.Look)
	return Progress{State: v1alpha1.ResultRunning, Message: waits, Values: values, Again: min(pause, max(left, time.Millisecond))}
}

// end evicts a pod, or deletes it for delete-pod. It only affects the pod that was read, never a
// new one of the same name. blocked says why the pod may not be ended now.
func (a *Actions) end(ctx context.Context, c *Call, p *corev1.Pod) (gone bool, blocked string, err error) {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
	if grace := c.Values.Duration("gracePeriod"); grace > 0 {
		options.GracePeriodSeconds = new(int64((grace + time.Second - 1) / time.Second))
	}
	if c.Builtin == "delete-pod" {
		err = a.api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, options)
	} else {
		err = a.api.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, DeleteOptions: &options,
		})
	}
	switch {
	case err == nil:
		return false, "", nil
	case apierrors.IsNotFound(err):
		return true, "", nil
	case apierrors.IsConflict(err):
		return false, "it has changed meanwhile", nil // another UID, perhaps: the next pass shows it
	case apierrors.IsTooManyRequests(err):
		return false, refusal(err), nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// Nothing can be created in such a namespace, not even an eviction. The namespace's
		// deletion also deletes the pod; kubectl drain waits for that too.
		return false, "its namespace is being deleted, and this pod with it", nil
	case definite(err):
		return false, "", refuse("pod %s/%s: %s", p.Namespace, p.Name, err)
	default:
		return false, "", fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
}

// refusal returns why the API server rejects an eviction for now, with the PodDisruptionBudget that
// it names.
func refusal(err error) string {
	text := []string{err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text = append(text, cause.Message)
		}
	}
	return strings.Join(text, " ")
}
