package controller

import (
	"context"
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
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// lookForPod is how often a pod that is on no node is looked for.
const lookForPod = 2 * time.Second

// place gives a Diagnosis the node of its pod.
//
// The status says so before the spec does: who may write Diagnoses and not their status
// can't make it look as if the controller had chosen the node ([placed]).
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
	if _, err := writeStatus(ctx, r.client, d, next); err != nil {
		return reconcile.Result{}, err
	}
	chosen := next.DeepCopy()
	chosen.Spec.NodeName = pod.Spec.NodeName
	patch := client.MergeFromWithOptions(next, client.MergeFromWithOptimisticLock{})
	return reconcile.Result{}, r.client.Patch(ctx, chosen, patch, client.FieldOwner(lease.Controller))
}

// waitForNode says what becomes of a Diagnosis whose pod is on no node.
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

// contradiction says where a Diagnosis that has not begun names a node which isn't its
// pod's. One that an agent has made for a problem knows better: the pod was there when it
// was hit, and another of its name may be elsewhere by now. What a targetSelector led to has
// the node from the pod.
func (r *diagnoses) contradiction(ctx context.Context, d *v1alpha1.Diagnosis) (string, error) {
	if d.Spec.PodReference == nil || d.Status.Phase != "" || d.Parent() != nil || placed(d) ||
		d.Labels[trigger.LabelSource] == string(trigger.SourceProblem) {
		return "", nil
	}
	pod, err := r.pod(ctx, d.Pod())
	if err != nil || pod == nil || pod.Spec.NodeName == "" || pod.Spec.NodeName == d.Spec.NodeName {
		return "", err
	}
	return fmt.Sprintf("the pod %s is on node %s, and not on %s", d.Pod(), pod.Spec.NodeName, d.Spec.NodeName), nil
}

// pod asks the API server for a pod, of which no cache has those of the cluster; nil: there
// is none.
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
