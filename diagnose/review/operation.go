package review

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// one checks an Operation by itself, whether a set uses it or not.
func (r *review) one(op *v1alpha1.Operation) {
	alone := &v1alpha1.OperationSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.KindOperationSet},
		ObjectMeta: metav1.ObjectMeta{Name: op.Name},
		Spec:       v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: op.Name}}},
	}
	config := r.config
	config.Operation = func(name string) *v1alpha1.Operation {
		found := r.operation(name)
		if found != nil && len(found.Spec.Dependences) > 0 {
			found = found.DeepCopy()
			found.Spec.Dependences = nil // whether they have run depends on the set
		}
		return found
	}
	_, err := resolve.Set(config, alone)
	r.faults(err)
	for i, name := range op.Spec.Dependences {
		if r.config.Effect(name) == "" {
			r.unknownOperation(op, "spec.dependences["+strconv.Itoa(i)+"]", name)
		}
	}
	if !op.Spec.TenantSafe || err != nil {
		return
	}
	pod := &v1alpha1.Diagnosis{Spec: v1alpha1.DiagnosisSpec{PodReference: &v1alpha1.PodReference{Name: "any"}}}
	if err := tenancy.Check(config, alone, pod); err != nil {
		r.addFinding(Warning, NotTenantSafe, op, "spec.tenantSafe", "no Diagnosis outside the system namespace can run it: %s", err)
	}
}

func (r *review) set(s *v1alpha1.OperationSet) {
	plan := r.plan(s, s.Name)
	if plan == nil {
		return
	}
	common := trigger.CommonParameters(trigger.SourceProblem)
	for id := 1; id < plan.Graph.Len(); id++ {
		inputs := plan.Inputs(id)
		for i := range inputs {
			name := inputs[i].Name
			// A Diagnosis usually has this parameter; an earlier result is only an alternative.
			if plan.Depends(id, name) || slices.Contains(common, name) {
				continue
			}
			if from := giver(plan, id, name); from != 0 && inputs[i].Default == "" {
				r.addFinding(Warning, Undeclared, s, "spec.adjacencyList["+strconv.Itoa(id)+"]",
					"node %d (%s) takes %s, which node %d (%s) returns: it is passed on only if that node is among the dependences",
					id, plan.Graph.Node(id).Operation, name, from, plan.Graph.Node(from).Operation)
			} else if inputs[i].Required && !r.triggered(s.Name) {
				r.addFinding(Info, NoInput, s, "spec.adjacencyList["+strconv.Itoa(id)+"]",
					"node %d (%s) requires %s: the Diagnosis must provide it", id, plan.Graph.Node(id).Operation, name)
			}
		}
	}
}

// giver returns a node that always runs before another and may have a result of the name, or 0.
func giver(p *resolve.Plan, id int, name string) int {
	for _, before := range slices.Backward(p.Graph.AlwaysBefore(id)) {
		if p.Declares(before, name) {
			return before
		}
	}
	return 0
}

// triggered reports whether a Trigger of the manifests starts a set: then missing inputs are
// reported on the Trigger.
func (r *review) triggered(set string) bool {
	return slices.ContainsFunc(r.m.Triggers, func(t *v1alpha1.Trigger) bool { return t.Spec.OperationSet == set })
}
