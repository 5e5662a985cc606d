package repair

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// A follow-up Diagnosis runs the OperationSet of another one again after a repair, with the same
// parameters. If nothing else shows whether the problem persists, its checks do. Its repairs are the
// further attempts of an escalation. Its parent is the Diagnosis of the first repair, and it is deleted
// together with that.

// followed returns which Diagnosis a follow-up Diagnosis follows; ok is false if it is not a follow-up.
func followed(d *v1alpha1.Diagnosis) (name string, ok bool) {
	name, text, found := strings.Cut(d.Annotations[v1alpha1.AnnotationFollows], "/")
	_, err := strconv.Atoi(text) // the node of its graph
	return name, found && err == nil && d.Parent() != nil
}

// root returns the UID of the Diagnosis that made the first repair.
func root(d *v1alpha1.Diagnosis) types.UID {
	if _, ok := followed(d); ok {
		return d.Parent().UID
	}
	return d.UID
}

// following returns the follow-up Diagnosis of a repair.
func following(d *v1alpha1.Diagnosis, id int) *v1alpha1.Diagnosis {
	var parent *metav1.OwnerReference
	if _, ok := followed(d); ok {
		parent = d.Parent()
	}
	out := d.Child(parent, "/"+strconv.Itoa(id), 63)
	out.Annotations[v1alpha1.AnnotationFollows] = d.Name + "/" + strconv.Itoa(id)
	return out
}

// follow returns the follow-up Diagnosis of a repair, and creates it if it does not exist.
func (l *look) follow(ctx context.Context, last *made) (*v1alpha1.Diagnosis, error) {
	have := &v1alpha1.Diagnosis{}
	err := l.client.Get(ctx, client.ObjectKeyFromObject(following(l.d, last.id)), have)
	if apierrors.IsNotFound(err) {
		have, err = l.createFollowing(ctx, last)
	}
	if err != nil {
		return nil, fmt.Errorf("follow-up diagnosis of %s: %w", last.operation, err)
	}
	return have, nil
}

// createFollowing creates the follow-up Diagnosis of a repair. It copies the labels from the API
// server, because the cached Diagnosis has only Kernosis' own labels.
func (l *look) createFollowing(ctx context.Context, last *made) (*v1alpha1.Diagnosis, error) {
	d := &v1alpha1.Diagnosis{}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(l.d), d); apierrors.IsNotFound(err) || err == nil && d.UID != l.d.UID {
		return nil, errGone
	} else if err != nil {
		return nil, err
	}
	out := following(d, last.id)
	err := l.client.Create(ctx, out, client.FieldOwner(lease.Controller))
	if apierrors.IsAlreadyExists(err) {
		return out, l.live.Get(ctx, client.ObjectKeyFromObject(out), out)
	}
	if err == nil {
		l.config.Log.Info("created a follow-up Diagnosis for a repair", "diagnosis", l.d.Namespace+"/"+l.d.Name, "node", l.d.Spec.NodeName, "operation", last.operation, "follows", out.Name)
	}
	return out, err
}

// cancelFollowing cancels the Diagnoses that follow a cancelled one, even ended ones: they cancel
// those that follow them.
func (l *look) cancelFollowing(ctx context.Context) error {
	var list v1alpha1.DiagnosisList
	if err := l.client.List(ctx, &list, client.InNamespace(l.d.Namespace), client.MatchingFields{controller.IndexParent: string(root(l.d))}); err != nil {
		return err
	}
	for i := range list.Items {
		f := &list.Items[i]
		if name, ok := followed(f); !ok || name != l.d.Name || f.Spec.Cancel {
			continue
		}
		next := f.DeepCopy()
		next.Spec.Cancel = true
		// No optimistic lock: a cancellation can't be taken back.
		if err := l.client.Patch(ctx, next, client.MergeFrom(f), client.FieldOwner(lease.Controller)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cancel Diagnosis %s: %w", f.Name, err)
		}
	}
	return nil
}

// checkAgain repeats the checks that preceded a repair, if nothing else reports whether it helped, and
// puts their result into o. why says what is pending, or why there is no result. It does not repeat the
// checks after a cancelled run or an unknown outcome, because the follow-up Diagnosis would also make
// the next attempt.
func (l *look) checkAgain(ctx context.Context, last *made, deadline time.Time, o *policy.Observation) (why string, pending bool, err error) {
	switch {
	case l.d.Spec.Cancel:
		return "the run was cancelled, so its checks are not repeated", false, nil
	case last.state == v1alpha1.ResultUnknown:
		return "its outcome is unknown, so the checks are not repeated: a person must check", false, nil
	}
	checks, err := l.checksBefore(ctx, last.id)
	if err != nil {
		return "", false, err
	}
	if len(checks) == 0 {
		return fmt.Sprintf("OperationSet %s has no check before it that can be repeated", l.d.Spec.OperationSet), false, nil
	}
	f, err := l.follow(ctx, last)
	if err != nil {
		return "", false, err
	}
	done := "Diagnosis " + f.Name + " has checked again"
	left := len(checks)
	for _, id := range checks {
		res := f.Status.Result(id)
		switch {
		case res == nil:
		case res.State == v1alpha1.ResultRefuted:
			// It began after the deadline: its result counts for the deadline, and so does a ready
			// node whose clock is ahead.
			o.Problem, o.Gone = v1alpha1.ProblemGone, deadline
			if o.Ready.After(o.Now) {
				o.Ready = deadline
			}
			return done, false, nil
		case res.State == v1alpha1.ResultSucceeded:
			left--
		}
	}
	switch {
	case left == 0:
		o.Problem, o.Seen = v1alpha1.ProblemLasts, time.Time{}
		return done, false, nil
	case f.Status.Phase.Ended():
		return "Diagnosis " + f.Name + " checked again without an answer", false, nil
	}
	return "Diagnosis " + f.Name + " is checking again", true, nil
}

// checksBefore returns the checks that succeeded on the path to a repair before it was made. While
// they succeed, the problem persists.
func (l *look) checksBefore(ctx context.Context, id int) ([]int, error) {
	set := &v1alpha1.OperationSet{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: l.d.Spec.OperationSet}, set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	c, failed := l.resolver(ctx)
	g, err := resolve.Graph(c, set)
	if *failed != nil {
		return nil, *failed
	}
	if err != nil || id < 1 || id >= g.Len() {
		return nil, nil //nolint:nilerr // it was changed: nothing can be checked again
	}
	var out []int
	for _, n := range passed(l.d, g, id) {
		if l.d.Status.Result(n).Operation == g.Node(n).Operation && c.Effect(g.Node(n).Operation) == v1alpha1.EffectCheck {
			out = append(out, n)
		}
	}
	return out, *failed
}

// passed returns the nodes that a run passed on its way to the node id.
func passed(d *v1alpha1.Diagnosis, g *graph.Graph, id int) []int {
	seen, next := map[int]bool{id: true}, []int{id}
	for len(next) > 0 {
		to := next[0]
		next = next[1:]
		for n := 1; n < g.Len(); n++ {
			res := d.Status.Result(n)
			if seen[n] || !slices.Contains(g.Node(n).To, to) || res == nil || res.State != v1alpha1.ResultSucceeded && res.Reason != v1alpha1.ReasonMadeBefore {
				continue
			}
			seen[n], next = true, append(next, n)
		}
	}
	delete(seen, id)
	return slices.Sorted(maps.Keys(seen))
}

// tryAgain creates a follow-up Diagnosis if a repair has not helped and the escalation's next step is
// the same repair again, or a later one that this run can't reach because a failed repair ends its
// path. Nothing follows a cancelled run.
func (l *look) tryAgain(ctx context.Context, v *view, last *made) error {
	n := v.cluster.Node(l.d.Spec.NodeName)
	if n == nil || l.d.Spec.Cancel || last.state == v1alpha1.ResultUnknown {
		return nil // if its outcome is unknown, a person must check
	}
	attempts, err := l.attempts(ctx, l.d)
	if err != nil {
		return err
	}
	for i := range attempts {
		if a := &attempts[i]; a.Diagnosis == l.d.UID && (a.State == policy.Verifying || a.State == policy.Unknown) {
			a.State = policy.NotHelped
		}
	}
	for _, p := range v.policies {
		if !p.Selects(n) || !p.Orders(last.operation) {
			continue
		}
		next := p.Next(attempts, l.now)
		follows := next == last.operation
		if next != "" && !follows && l.stopped(last) {
			if follows, err = l.leadsTo(ctx, last.id, next); err != nil {
				return err
			}
		}
		if follows {
			_, err := l.follow(ctx, last)
			return err
		}
	}
	return nil
}

// stopped reports whether a repair has failed and the run makes no other one instead.
func (l *look) stopped(last *made) bool {
	waits := l.d.Status.AwaitingApproval()
	return last.state == v1alpha1.ResultFailed && (waits == nil || int(waits.ID) == last.id)
}

// leadsTo reports whether an operation comes after a node of the OperationSet's graph.
func (l *look) leadsTo(ctx context.Context, id int, operation string) (bool, error) {
	set := &v1alpha1.OperationSet{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: l.d.Spec.OperationSet}, set); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	g, err := resolve.Graph(resolve.Config{}, set)
	if err != nil {
		return false, nil //nolint:nilerr // it was changed: nothing can run again
	}
	return slices.Contains(later(g, id), operation), nil
}

// runs returns the Diagnosis that this one follows, and whether it is still running.
func (l *look) runs(ctx context.Context) (name string, yes bool, err error) {
	name, ok := followed(l.d)
	if !ok {
		return "", false, nil
	}
	d := &v1alpha1.Diagnosis{}
	err = l.client.Get(ctx, client.ObjectKey{Namespace: l.d.Namespace, Name: name}, d)
	return name, err == nil && !d.Status.Phase.Ended(), client.IgnoreNotFound(err)
}

// problem returns the problem that is recorded in the Diagnosis itself or in one of its parents.
func (l *look) problem(ctx context.Context) (*v1alpha1.Problem, error) {
	const most = 4 // a follow-up, its parent, and the parent's targetSelector Diagnosis
	d := l.d
	for range most {
		if d.Status.Problem != nil {
			return d.Status.Problem, nil
		}
		parent := d.Parent()
		if parent == nil {
			return nil, nil
		}
		up := &v1alpha1.Diagnosis{}
		err := l.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: parent.Name}, up)
		if apierrors.IsNotFound(err) || err == nil && up.UID != parent.UID {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		d = up
	}
	return nil, nil
}
