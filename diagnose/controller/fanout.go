package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

const (
	// defaultTargets is the default in the API.
	defaultTargets = 50
	// makeWithin is how long creating the Diagnoses of targets is retried if a quota or an
	// admission policy rejects them.
	makeWithin = 10 * time.Minute
	// countEvery is the shortest and countAgain the longest interval between counts of the targets
	// that have ended. The latter is in case a change was missed.
	countEvery, countAgain = time.Second, time.Minute
)

// fanOut reconciles a Diagnosis with a targetSelector: it creates the Diagnoses of the targets and
// counts how they end. While status.targets is absent, creation is not finished and is continued.
func (r *diagnoses) fanOut(ctx context.Context, d *v1alpha1.Diagnosis) (reconcile.Result, error) {
	if d.Status.Targets == nil {
		return r.makeTargets(ctx, d)
	}
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{IndexParent: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	if d.Spec.Cancel {
		if err := r.cancel(ctx, list.Items); err != nil {
			return reconcile.Result{}, err
		}
	}
	t := tallyOf(list.Items)
	missing := int(d.Status.Targets.Created) - len(list.Items)
	if t.running == 0 && missing > 0 {
		// The cache may not have them yet; otherwise somebody has deleted them.
		var err error
		if list.Items, err = r.children(ctx, d); err != nil {
			return reconcile.Result{}, err
		}
		t = tallyOf(list.Items)
		t.ended += max(0, int(d.Status.Targets.Created)-len(list.Items)) // those deleted did not succeed
	}
	next := d.DeepCopy()
	next.Status.Targets.Succeeded, next.Status.Targets.Failed = int32(t.succeeded), int32(t.ended-t.succeeded)
	if t.running > 0 || missing > 0 && t.ended < int(d.Status.Targets.Created) {
		return reconcile.Result{RequeueAfter: countAgain}, writeStatus(ctx, r.client, d, next)
	}
	apply(next, t.end(d), time.Now())
	return reconcile.Result{}, writeStatus(ctx, r.client, d, next)
}

// makeTargets creates the Diagnoses of a targetSelector.
func (r *diagnoses) makeTargets(ctx context.Context, d *v1alpha1.Diagnosis) (reconcile.Result, error) {
	existing, err := r.children(ctx, d) // created by a controller that stopped half way
	if err != nil {
		return reconcile.Result{}, err
	}
	if d.Spec.Cancel && len(existing) == 0 {
		return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, "cancelled before it began", nil)
	}
	var all chosen
	if !d.Spec.Cancel {
		if no, err := r.setRefusal(ctx, d); err != nil || no != (refused{}) {
			return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, no.reason, no.message, err)
		}
		if all, err = r.choose(ctx, d); err != nil {
			return reconcile.Result{}, err
		}
		if len(all.targets)+len(existing) == 0 {
			return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, v1alpha1.ReasonNoTargets, join("targetSelector matches nothing", all.left()), nil)
		}
	}
	if d, err = r.begin(ctx, d); err != nil {
		return reconcile.Result{}, err
	}
	made, matched, why, err := r.makeAll(ctx, d, all.targets, existing)
	if err != nil {
		if time.Since(d.Status.StartTime.Time) < makeWithin {
			return reconcile.Result{}, err
		}
		why = join(why, fmt.Sprintf("not all could be created: %v", err))
	}
	next := d.DeepCopy()
	next.Status.Targets = &v1alpha1.Targets{Matched: int32(matched), Created: int32(made)}
	s := &step{reason: v1alpha1.ReasonTargetsRun, message: join(all.left(), why)}
	if made == 0 {
		s = &step{phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonNoTargetSucceeded, message: s.message}
	}
	apply(next, s, time.Now())
	return reconcile.Result{RequeueAfter: countEvery}, writeStatus(ctx, r.client, d, next)
}

// begin sets the status to Running.
func (r *diagnoses) begin(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	if d.Status.Phase == v1alpha1.PhaseRunning && d.Status.StartTime != nil {
		return d, nil
	}
	next, now := d.DeepCopy(), metav1.NowMicro()
	next.Status.Phase, next.Status.StartTime, next.Status.ObservedGeneration = v1alpha1.PhaseRunning, &now, d.Generation
	return next, writeStatus(ctx, r.client, d, next)
}

// setRefusal returns why the OperationSet would make the Diagnoses of all targets fail, if it
// would.
func (r *diagnoses) setRefusal(ctx context.Context, d *v1alpha1.Diagnosis) (refused, error) {
	set, c, err := r.set(ctx, d.Spec.OperationSet)
	if err != nil {
		return refused{}, err
	}
	if set == nil {
		return noSet(d), nil
	}
	if reason, message, ok := checkSet(c, set); !ok {
		return refused{v1alpha1.ReasonOperationSetNotReady, reason + ": " + message}, nil
	}
	return refused{}, nil
}

// makeAll creates Diagnoses for targets until maxTargets exist, including the existing ones. It
// returns how many exist, how many there would be without the bound, and why some targets are
// invalid. An error may be temporary.
func (r *diagnoses) makeAll(ctx context.Context, d *v1alpha1.Diagnosis, targets []target, existing []v1alpha1.Diagnosis) (made, matched int, wrong string, err error) {
	most := cmp.Or(int(d.Spec.TargetSelector.MaxTargets), defaultTargets)
	there := make(map[string]bool, len(existing))
	for i := range existing {
		there[existing[i].Name] = true
	}
	made, matched = len(existing), len(existing)
	bad := 0
	for i := range targets {
		c := child(d, &targets[i])
		if there[c.Name] {
			continue
		}
		matched++
		if made >= most || err != nil {
			continue
		}
		switch e := r.client.Create(ctx, c, client.FieldOwner(lease.Controller)); {
		case e == nil, apierrors.IsAlreadyExists(e):
			made++
		case apierrors.IsInvalid(e):
			if bad++; bad == 1 {
				wrong = e.Error()
			}
		default:
			err = e
		}
	}
	if bad > 0 {
		wrong = fmt.Sprintf("%d unusable as a target: %s", bad, wrong)
	}
	return made, matched, wrong, err
}

// children reads the Diagnoses of a targetSelector from the API server.
func (r *diagnoses) children(ctx context.Context, d *v1alpha1.Diagnosis) ([]v1alpha1.Diagnosis, error) {
	var all []v1alpha1.Diagnosis
	page := ""
	for {
		var list v1alpha1.DiagnosisList
		if err := r.api.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabels{v1alpha1.LabelParent: string(d.UID)},
			client.Limit(podPage), client.Continue(page)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if p := list.Items[i].Parent(); p != nil && p.UID == d.UID {
				all = append(all, list.Items[i])
			}
		}
		if page = list.Continue; page == "" {
			return all, nil
		}
	}
}

// cancel cancels the Diagnoses that have not ended.
func (r *diagnoses) cancel(ctx context.Context, list []v1alpha1.Diagnosis) error {
	for i := range list {
		if list[i].Status.Completed() || list[i].Spec.Cancel {
			continue
		}
		next := list[i].DeepCopy()
		next.Spec.Cancel = true
		// No optimistic lock: a cancellation can't be taken back, so concurrent changes don't
		// matter.
		if err := r.client.Patch(ctx, next, client.MergeFrom(&list[i]), client.FieldOwner(lease.Controller)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// tally counts the Diagnoses of targets.
type tally struct{ running, ended, succeeded, unknown int }

func tallyOf(list []v1alpha1.Diagnosis) *tally {
	var t tally
	for i := range list {
		if !list[i].Status.Completed() {
			t.running++
			continue
		}
		t.ended++
		switch list[i].Status.Phase {
		case v1alpha1.PhaseSucceeded:
			t.succeeded++
		case v1alpha1.PhaseUnknown:
			t.unknown++
		}
	}
	return &t
}

// end returns the final step of a Diagnosis whose targets have all ended.
func (t *tally) end(d *v1alpha1.Diagnosis) *step {
	message := fmt.Sprintf("%d of %d targets have succeeded", t.succeeded, t.ended)
	if more := d.Status.Targets.Matched - d.Status.Targets.Created; more > 0 {
		message = join(message, fmt.Sprintf("%d more were selected but got no Diagnosis", more))
	}
	if c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete); c != nil && c.Reason == v1alpha1.ReasonTargetsRun {
		message = join(message, c.Message)
	}
	s := &step{phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonNoTargetSucceeded, message: message}
	switch {
	case d.Spec.Cancel:
		s.phase, s.reason = v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled
	case t.succeeded > 0:
		s.phase, s.reason = v1alpha1.PhaseSucceeded, v1alpha1.ReasonTargetsSucceeded
	case t.unknown > 0:
		s.phase, s.reason = v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown
	}
	return s
}

// join joins two sentences, either of which may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// podPage is how many pods are read at once: some MiB.
const podPage = 500

// target is the node or pod that a Diagnosis of a targetSelector is about.
type target struct {
	node string                 // empty for a pod whose node the controller finds later
	pod  *v1alpha1.PodReference // nil: it is about the node
}

// key identifies and orders targets.
func (t *target) key() string {
	if t.pod != nil {
		return "pod/" + t.pod.Namespace + "/" + t.pod.Name + "/" + t.pod.Container
	}
	return "node/" + t.node
}

// chosen is what a targetSelector selects.
type chosen struct {
	targets []target // sorted, each once
	// Pods that match and can't be diagnosed.
	notRunning, onNoNode int
}

// left returns a text about the pods that were left out, or "" if there are none.
func (c *chosen) left() string {
	if c.notRunning+c.onNoNode == 0 {
		return ""
	}
	var parts []string
	if c.notRunning > 0 {
		parts = append(parts, fmt.Sprintf("%d not running", c.notRunning))
	}
	if c.onNoNode > 0 {
		parts = append(parts, fmt.Sprintf("%d on no node", c.onNoNode))
	}
	return "pods left out: " + strings.Join(parts, ", ")
}

// choose returns what a Diagnosis' targetSelector selects now. Nodes and pods given by name are
// always targets: if one does not exist, its Diagnosis reports that.
func (r *diagnoses) choose(ctx context.Context, d *v1alpha1.Diagnosis) (chosen, error) {
	s, by, out := d.Spec.TargetSelector, map[string]target{}, chosen{}
	add := func(t target) { by[t.key()] = t }
	for _, name := range s.NodeNames {
		add(target{node: name})
	}
	if s.NodeSelector != nil {
		selector, err := s.NodeSelector.Selector()
		if err != nil {
			return out, err
		}
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return out, err
		}
		for i := range nodes.Items {
			add(target{node: nodes.Items[i].Name})
		}
	}
	if s.PodSelector != nil {
		namespaces := s.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{d.Namespace}
		}
		for _, namespace := range namespaces {
			if err := r.choosePods(ctx, s.PodSelector, namespace, &out, add); err != nil {
				return out, err
			}
		}
	}
	for _, p := range s.PodReferences {
		p.Namespace = cmp.Or(p.Namespace, d.Namespace)
		add(target{pod: &p})
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		out.targets = append(out.targets, by[key])
	}
	return out, nil
}

// choosePods reads the pods of a namespace from the API server, page by page.
func (r *diagnoses) choosePods(ctx context.Context, by *v1alpha1.LabelSelector, namespace string, out *chosen, add func(target)) error {
	selector, err := by.Selector()
	if err != nil {
		return err
	}
	page := ""
	for {
		var pods corev1.PodList
		if err := r.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector},
			client.Limit(podPage), client.Continue(page)); err != nil {
			return err
		}
		for i := range pods.Items {
			switch p := &pods.Items[i]; {
			case p.Spec.NodeName == "":
				out.onNoNode++
			case p.Status.Phase != corev1.PodRunning:
				out.notRunning++
			default:
				add(target{node: p.Spec.NodeName, pod: &v1alpha1.PodReference{Namespace: p.Namespace, Name: p.Name}})
			}
		}
		if page = pods.Continue; page == "" {
			return nil
		}
	}
}

// child returns the Diagnosis of a target.
func child(parent *v1alpha1.Diagnosis, t *target) *v1alpha1.Diagnosis {
	d := parent.Child(nil, "\n"+t.key(), 253)
	d.Spec.NodeName, d.Spec.PodReference = t.node, t.pod
	return d
}
