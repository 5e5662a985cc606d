package liveness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// reconciler updates one Node's conditions from the state of its agent. Several goroutines use
// it, each Node one at a time.
type reconciler struct {
	config  *Config
	tracker *tracker
	nodes   client.Reader // the cache
	client  kubernetes.Interface
	counts  *counts

	mu       sync.Mutex
	limiters map[string]*rate.Limiter // by zone
	pause    time.Time                // no write before: the API asked to wait
	refused  map[string]time.Time     // condition types that the API refuses: not tried before
}

const (
	// retryAtLeast and retryAtMost bound how soon a write that had to wait asks for a permit again.
	retryAtLeast, retryAtMost = time.Second, 10 * time.Second
	// afterConflict gives the cache time to receive the newer Node.
	afterConflict = 200 * time.Millisecond
)

// Reconcile reconciles one Node.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	now := time.Now()
	node := &corev1.Node{}
	if err := r.nodes.Get(ctx, types.NamespacedName{Name: request.Name}, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	j := r.tracker.judge(request.Name, now)
	if !j.node || j.nodeUID != node.UID {
		return reconcile.Result{}, nil // its event will come
	}
	changes := plan(j.state, &j.observation, node.Status.Conditions, j.common, now)
	changes, after := r.allowed(changes, r.next(&j, now), now)
	if len(changes) == 0 {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	if wait := r.permit(&j, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	outcome, err := r.write(ctx, node, changes)
	if refuses(outcome) {
		outcome, err = r.singly(ctx, node, changes)
		changes, after = r.allowed(changes, r.next(&j, now), now)
	}
	if err == nil && len(changes) > 0 {
		r.config.Log.Info("set the conditions of a silent agent to Unknown", "node", node.Name, "state", string(j.state), "conditions", len(changes), "reason", changes[0].Reason)
	}
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: after}, nil
	case ctx.Err() != nil:
		return reconcile.Result{}, nil //nolint:nilerr // the controller ends
	}
	return r.failed(node.Name, outcome, err)
}

// write sends one patch and counts it. It is for the Node as it was read, or as the last patch has left
// it: any later writer may have been its agent. If it fails, the Node is reconciled again.
func (r *reconciler) write(ctx context.Context, node *corev1.Node, changes []change) (conditions.Outcome, error) {
	body, err := encode(node.ResourceVersion, changes)
	if err != nil {
		return conditions.Refused, err
	}
	patched, err := conditions.Patch(ctx, r.client, node.Name, lease.Controller, defaultTimeout, body)
	outcome := conditions.OutcomeOf(err)
	if err == nil {
		node.ResourceVersion = patched.ResourceVersion
	}
	if err == nil || ctx.Err() == nil {
		r.counts.wrote(outcome, changes)
	}
	return outcome, err
}

// refuses reports whether an outcome may come from a policy.
func refuses(o conditions.Outcome) bool { return o == conditions.Refused || o == conditions.Forbidden }

// singly writes one by one changes that the API refused as a batch, so that one refused change does not
// block the others. A type that is refused alone is left out for a while, on all Nodes.
func (r *reconciler) singly(ctx context.Context, node *corev1.Node, changes []change) (conditions.Outcome, error) {
	// If even an empty change is refused, permission is missing.
	if outcome, err := r.write(ctx, node, changes[:0]); err != nil {
		return outcome, err
	}
	for i := range changes {
		outcome, err := r.write(ctx, node, changes[i:i+1])
		if err == nil {
			continue
		}
		if !refuses(outcome) {
			return outcome, err
		}
		r.config.Log.Warn("the API server refuses the condition", "condition", changes[i].Type, "node", node.Name, "error", err)
		r.mu.Lock()
		r.refused[changes[i].Type] = time.Now().Add(conditions.BlockFor)
		r.mu.Unlock()
	}
	return conditions.Written, nil
}

// allowed leaves out changes of types that the API has recently refused. It returns when to
// reconcile again: after the given time, or when one of them is due.
func (r *reconciler) allowed(changes []change, after time.Duration, now time.Time) ([]change, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(changes, func(c change) bool {
		left := r.refused[c.Type].Sub(now)
		if left > 0 && (after == 0 || left < after) {
			after = left
		}
		return left > 0
	}), after
}

// failed returns when a failed write is retried.
func (r *reconciler) failed(node string, outcome conditions.Outcome, err error) (reconcile.Result, error) {
	switch outcome {
	case conditions.NodeMissing:
		return reconcile.Result{}, nil // its event will come
	case conditions.Conflict:
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	}
	if asked := conditions.AskedDelay(err); asked > 0 {
		r.config.Log.Warn("API server asked to wait", "node", node, "outcome", string(outcome), "seconds", int(asked.Seconds()))
		r.mu.Lock()
		if until := time.Now().Add(asked); until.After(r.pause) {
			r.pause = until
		}
		r.mu.Unlock()
		return reconcile.Result{RequeueAfter: asked + rand.N(asked/2+time.Second)}, nil
	}
	// The error is logged, and the write is retried with growing waits.
	return reconcile.Result{}, fmt.Errorf("conditions of a silent agent: %w", err)
}

// next returns when a Node is reconciled again even if nothing happens.
func (r *reconciler) next(j *judgement, now time.Time) time.Duration {
	switch {
	case j.state == stateNever && len(j.common) == 0:
		return r.config.Silent // until agents list types
	case j.until.IsZero():
		return 0
	}
	return max(j.until.Sub(now), time.Millisecond)
}

// permit returns how long a write has to wait; zero: it may be sent now.
func (r *reconciler) permit(j *judgement, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pause := r.pause.Sub(now); pause > 0 {
		r.counts.waits.WithLabelValues(waitAsked).Inc()
		return pause + rand.N(pause/2+time.Millisecond)
	}
	if j.halted {
		r.counts.waits.WithLabelValues(waitHalted).Inc()
		return retryAtLeast + rand.N(retryAtLeast)
	}
	zone := j.observation.zone
	if !j.zone.slowed() {
		delete(r.limiters, zone)
		return 0
	}
	limiter := r.limiters[zone]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Limit(r.config.SlowRate), 1)
		r.limiters[zone] = limiter
		r.config.Log.Warn("most agents of a zone are silent: writes are slowed", "zone", zone, "agents", j.zone.agents, "quiet", j.zone.quiet)
	}
	if limiter.AllowN(now, 1) {
		return 0
	}
	r.counts.waits.WithLabelValues(waitSlowed).Inc()
	// So that about ten Nodes ask for each permit.
	wait := time.Duration(float64(j.zone.quiet) / r.config.SlowRate / 10 * float64(time.Second))
	wait = min(max(wait, retryAtLeast), retryAtMost)
	return wait/2 + rand.N(wait)
}
