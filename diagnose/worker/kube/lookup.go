package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// lookUp reads the objects that a new Diagnosis needs and the mirrors lack. The watches of the
// kinds are not synchronized: when a set and its Diagnosis are created together, the Diagnosis may
// arrive first, and would fail because the set is missing. news is called if something was found.
func (s *Store) lookUp(ctx context.Context, d *v1alpha1.Diagnosis, news func()) {
	name := types.NamespacedName{Name: d.Spec.OperationSet}
	set, known := s.sets.get(name)
	if !known {
		set = &v1alpha1.OperationSet{}
		if s.api.get(ctx, operationSets, name, set) != nil {
			return // the run reports a missing set; the account logs other errors
		}
		trimSet(set)
		s.sets.learn(set)
	}
	found := !known
	asked := make(map[string]bool)
	for i := range set.Spec.AdjacencyList {
		name := types.NamespacedName{Name: set.Spec.AdjacencyList[i].Operation}
		if _, known := s.operations.get(name); known || name.Name == "" || asked[name.Name] || s.config.Builtin(name.Name) {
			continue
		}
		asked[name.Name] = true
		o := &v1alpha1.Operation{}
		if err := s.api.get(ctx, operations, name, o); isAway(outcomeOf(err)) {
			break
		} else if err != nil {
			continue
		}
		trimOperation(o)
		s.operations.learn(o)
		found = true
	}
	if found {
		news()
	}
}
