package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// lookForPod is how often an unscheduled pod is checked.
const lookForPod = 2 * time.Second

// place sets the Diagnosis' node to that of its pod.
//
// The status is written before the spec. So a user who may write Diagnoses but not their status
// can't pretend that the controller has chosen the node ([placed]).
func (r *diagnoses) place(ctx context.Context, d *v1alpha1.Diagnosis) (reconcile.Result, error) {
	if d.Spec.Cancel {
		return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, "cancelled before it began", nil)
	}
	key := d.Pod()
	pod, err := r.pod(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, v1alpha1.ReasonPodNotFound, fmt.Sprintf("there is no pod %s", key), nil)
	}
	if pod.Spec.NodeName == "" {
		s := waitForNode(d, pod, r.config.PodWait, time.Now())
		return reconcile.Result{RequeueAfter: s.again}, r.write(ctx, d, &s)
	}
	if no := r.refusalOfPod(d, pod); no != (refused{}) {
		return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, no.reason, no.message, nil)
	}
	next := d.DeepCopy()
	apply(next, &step{}, time.Now())
	apimeta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNodeOfPod,
		Message: placedMessage(key, pod.Spec.NodeName), ObservedGeneration: next.Generation,
	})
	if err := writeStatus(ctx, r.client, d, next); err != nil {
		return reconcile.Result{}, err
	}
	chosen := next.DeepCopy()
	chosen.Spec.NodeName = pod.Spec.NodeName
	patch := client.MergeFromWithOptions(next, client.MergeFromWithOptimisticLock{})
	return reconcile.Result{}, r.client.Patch(ctx, chosen, patch, client.FieldOwner(lease.Controller))
}

// waitForNode returns the next step of a Diagnosis whose pod is unscheduled.
func waitForNode(d *v1alpha1.Diagnosis, pod *corev1.Pod, wait time.Duration, now time.Time) step {
	why := fmt.Sprintf("the pod %s/%s is on no node", pod.Namespace, pod.Name)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return ends(d, v1alpha1.ReasonPodNotFound, why+", and has ended")
	}
	left := d.CreationTimestamp.Add(wait).Sub(now)
	if left <= 0 {
		return ends(d, v1alpha1.ReasonPodNotFound, fmt.Sprintf("%s; waited for %s", why, wait))
	}
	return step{reason: v1alpha1.ReasonPodNotScheduled, message: why, again: min(left, lookForPod)}
}

// contradiction returns an error text if a Diagnosis that has not begun names a node other than its
// pod's. It trusts a Diagnosis that an agent created for a problem: the pod was on the node when
// the problem hit it, and a pod of the same name may run on another node by now. A Diagnosis from a
// targetSelector got its node from the pod.
func (r *diagnoses) contradiction(ctx context.Context, d *v1alpha1.Diagnosis) (string, error) {
	if d.Spec.PodReference == nil || d.Status.Phase != "" || d.Parent() != nil || placed(d) ||
		d.Labels[trigger.LabelSource] == string(trigger.SourceProblem) {
		return "", nil
	}
	pod, err := r.pod(ctx, d.Pod())
	if err != nil || pod == nil || pod.Spec.NodeName == "" || pod.Spec.NodeName == d.Spec.NodeName {
		return "", err
	}
	return fmt.Sprintf("the pod %s is on node %s, not on %s", d.Pod(), pod.Spec.NodeName, d.Spec.NodeName), nil
}

// pod reads a pod from the API server, because no cache has all pods of the cluster. It returns nil
// if there is none.
func (r *diagnoses) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.api.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// placed reports whether the controller has chosen the node that the spec names.
func placed(d *v1alpha1.Diagnosis) bool {
	c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionPlaced)
	return c != nil && c.Status == metav1.ConditionTrue && d.Spec.NodeName != "" && c.Message == placedMessage(d.Pod(), d.Spec.NodeName)
}

func placedMessage(pod types.NamespacedName, node string) string {
	return fmt.Sprintf("the pod %s is on node %s", pod, node)
}

// refused is why a Diagnosis must not run. The zero value: it may.
type refused struct {
	reason, message string
}

// refusal returns why a Diagnosis of a namespace's user may not run, before its pod is looked up.
func (r *diagnoses) refusal(ctx context.Context, d *v1alpha1.Diagnosis) (refused, error) {
	if why := tenancy.Target(d); why != nil {
		return notAllowed(why), nil
	}
	if d.Spec.NodeName != "" && !placed(d) {
		return refused{v1alpha1.ReasonNotAllowed, "spec.nodeName: outside the system namespace only the controller sets it"}, nil
	}
	if d.Spec.NodeName != "" {
		return refused{}, nil // it was checked before it was placed
	}
	set, c, err := r.set(ctx, d.Spec.OperationSet)
	if err != nil {
		return refused{}, err
	}
	if set == nil {
		return noSet(d), nil
	}
	return notAllowed(tenancy.Check(c, set, d)), nil
}

// notAllowed converts an error of package tenancy; nil: no refusal.
func notAllowed(why error) refused {
	if why == nil {
		return refused{}
	}
	return refused{v1alpha1.ReasonNotAllowed, why.Error()}
}

// refusalOfPod is [diagnoses.refusal] once the pod is known.
func (r *diagnoses) refusalOfPod(d *v1alpha1.Diagnosis, pod *corev1.Pod) refused {
	if !tenancy.Applies(d, r.config.Namespace) {
		return refused{}
	}
	known, err := tenancy.PodOf(pod, d.Spec.PodReference)
	if _, ok := errors.AsType[tenancy.Refusals](err); ok {
		return notAllowed(err)
	}
	if err != nil {
		return refused{v1alpha1.ReasonPodNotFound, err.Error()}
	}
	_, why := tenancy.Parameters(d.Spec.Parameters, known)
	return notAllowed(why)
}

func noSet(d *v1alpha1.Diagnosis) refused {
	return refused{v1alpha1.ReasonOperationSetNotFound, fmt.Sprintf("no OperationSet is named %q", d.Spec.OperationSet)}
}
