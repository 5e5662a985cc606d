package repair

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// agents simulate all nodes' agents: they run the operations of a set one after the other, and wait
// with repairs as the protocol requires.
type agents struct {
	b     *bench
	built []operation.Builtin
	known map[string]*v1alpha1.Operation    // by name; nil: there is none
	sets  map[string]*v1alpha1.OperationSet // by name

	mu   sync.Mutex
	made []string // repairs that agents have made, as node:operation

	skew atomic.Int64 // by how many nanoseconds the nodes' clocks are ahead

	stop func() // stops the agents
}

// now returns the time by the nodes' clocks.
func (a *agents) now() metav1.MicroTime {
	return metav1.NewMicroTime(time.Now().Add(time.Duration(a.skew.Load())))
}

func newAgents(b *bench) *agents {
	a := &agents{b: b, built: catalog.All(operation.Host{}), known: map[string]*v1alpha1.Operation{}, sets: map[string]*v1alpha1.OperationSet{}}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { a.run(ctx) })
	a.stop = func() { cancel(); ended.Wait() }
	b.Cleanup(a.stop)
	return a
}

func (a *agents) run(ctx context.Context) {
	for {
		var list v1alpha1.DiagnosisList
		if err := a.b.client.List(ctx, &list, client.InNamespace(a.b.system)); err == nil {
			for i := range list.Items {
				a.step(ctx, &list.Items[i])
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond): // between reads of the API
		}
	}
}

// step advances a Diagnosis and writes the changes. After a conflict it leaves them to the next
// step.
func (a *agents) step(ctx context.Context, d *v1alpha1.Diagnosis) {
	if meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionComplete) {
		return
	}
	set := a.sets[d.Spec.OperationSet]
	if set == nil {
		set = &v1alpha1.OperationSet{}
		if a.b.client.Get(ctx, client.ObjectKey{Name: d.Spec.OperationSet}, set) != nil {
			return
		}
		a.sets[d.Spec.OperationSet] = set
	}
	if a.advance(ctx, d, set) {
		_ = a.b.client.Status().Update(ctx, d) // otherwise in the next step
	}
}

// advance does one thing.
func (a *agents) advance(ctx context.Context, d *v1alpha1.Diagnosis, set *v1alpha1.OperationSet) bool {
	c := resolve.Config{Builtins: a.built, Operation: func(name string) *v1alpha1.Operation {
		if o, ok := a.known[name]; ok {
			return o
		}
		o := &v1alpha1.Operation{}
		if a.b.client.Get(ctx, client.ObjectKey{Name: name}, o) != nil {
			o = nil
		}
		a.known[name] = o
		return o
	}}
	s := &d.Status
	if d.Spec.Cancel {
		return a.end(s, v1alpha1.PhaseCancelled)
	}
	for id := 1; id < len(set.Spec.AdjacencyList); id++ {
		name := set.Spec.AdjacencyList[id].Operation
		res := d.Status.Result(id)
		if res == nil {
			now := a.now()
			r := v1alpha1.Result{ID: int32(id), Operation: name, State: v1alpha1.ResultSucceeded, StartTime: &now}
			if c.Effect(name) == v1alpha1.EffectRemediate {
				r.State, r.StartTime = v1alpha1.ResultAwaitingApproval, nil
			}
			s.Phase, s.Results = v1alpha1.PhaseRunning, append(s.Results, r)
			return true
		}
		switch res.State {
		case v1alpha1.ResultFailed:
			return a.end(s, v1alpha1.PhaseFailed)
		case v1alpha1.ResultUnknown:
			return a.end(s, v1alpha1.PhaseUnknown)
		case v1alpha1.ResultAwaitingApproval:
			return a.ask(ctx, d, res, c.Spec(name), name)
		}
	}
	return a.end(s, v1alpha1.PhaseSucceeded)
}

func (a *agents) end(s *v1alpha1.DiagnosisStatus, phase v1alpha1.Phase) bool {
	now := a.now()
	s.Phase, s.CompletionTime = phase, &now
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPathSucceeded})
	return true
}

// ask reads the decision on a repair.
func (a *agents) ask(ctx context.Context, d *v1alpha1.Diagnosis, res *v1alpha1.Result, spec *v1alpha1.OperationSpec, name string) bool {
	plan, err := policy.PlanOf(d, int(res.ID), name, spec, nil)
	if err != nil {
		return false
	}
	digest, err := plan.Digest()
	rem := d.Status.Remediation(int(res.ID))
	if err != nil || rem == nil || rem.PlanDigest != digest {
		return false
	}
	switch {
	case rem.Verb == v1alpha1.RemediationWouldRun:
		res.State = v1alpha1.ResultWouldRun
	case rem.Verb == v1alpha1.RemediationWithheld:
		res.State = v1alpha1.ResultWithheld
	case rem.Verb == v1alpha1.RemediationWait:
		return false
	case a.byController(spec):
		if rem.Outcome == nil || rem.Outcome.CompletionTime == nil {
			return false
		}
		took := rem.Outcome.CompletionTime.Sub(rem.Outcome.StartTime.Time)
		began := metav1.NewMicroTime(a.now().Add(-took))
		res.State, res.Message, res.Values = rem.Outcome.State, rem.Outcome.Message, rem.Outcome.Values
		res.StartTime, res.Duration = &began, &metav1.Duration{Duration: took}
	default:
		return a.mend(ctx, d, res, name)
	}
	res.Reason, res.Message = rem.Reason, rem.Message
	return true
}

func (a *agents) byController(spec *v1alpha1.OperationSpec) bool {
	if spec.Processor.Builtin == nil {
		return false
	}
	b, ok := operation.Lookup(a.built, spec.Processor.Builtin.Name)
	return ok && b.ByController
}

// mend makes a repair of the node itself, which succeeds, after writing its intent.
func (a *agents) mend(ctx context.Context, d *v1alpha1.Diagnosis, res *v1alpha1.Result, name string) bool {
	now := a.now()
	d.Status.Checkpoint = &v1alpha1.Checkpoint{Holder: "agent", Time: now, Intent: &v1alpha1.Intent{ID: res.ID, Operation: name, Time: now}}
	if a.b.client.Status().Update(ctx, d) != nil {
		return false
	}
	a.mu.Lock()
	a.made = append(a.made, d.Spec.NodeName+":"+name)
	a.mu.Unlock()
	// The controller may write meanwhile.
	for ctx.Err() == nil {
		fresh := &v1alpha1.Diagnosis{}
		if a.b.client.Get(ctx, client.ObjectKeyFromObject(d), fresh) != nil {
			return false
		}
		res := fresh.Status.Result(int(res.ID))
		res.State, res.StartTime, res.Duration = v1alpha1.ResultSucceeded, &now, &metav1.Duration{Duration: a.now().Sub(now.Time)}
		fresh.Status.Checkpoint.Intent = nil
		if a.b.client.Status().Update(ctx, fresh) == nil {
			return false // it is written
		}
	}
	return false
}
