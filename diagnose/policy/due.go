package policy

import (
	"fmt"
	"maps"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// PlanOf returns the plan of one repair that is due: of a node of the graph that a
// Diagnosis runs, whose operation has the spec, and which gets the results of dependences,
// of which the later win. It is made of what the API has and nothing else, so that agent
// and controller come to the same digest.
//
// Its error says which dependence has no results, or some that were cut: nobody could
// approve of what he can't see whole.
func PlanOf(d *v1alpha1.Diagnosis, id int, operation string, spec *v1alpha1.OperationSpec, dependences []int) (*Plan, error) {
	results := map[string]string{}
	for _, dependence := range dependences {
		res := d.Status.Result(dependence)
		switch {
		case res == nil:
			return nil, fmt.Errorf("plan: node %d has no result yet", dependence)
		case res.Truncated:
			return nil, fmt.Errorf("plan: the results of node %d (%s) are too long to be shown whole", dependence, res.Operation)
		}
		maps.Copy(results, res.Values)
	}
	return &Plan{Diagnosis: d.UID, Node: d.Spec.NodeName, Steps: []Step{{
		ID: id, Operation: operation, Spec: *spec.DeepCopy(), Parameters: maps.Clone(d.Spec.Parameters), Results: results,
	}}}, nil
}
