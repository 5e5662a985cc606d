package policy

import (
	"fmt"
	"maps"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// PlanOf returns the plan of one due repair: of the node id in the graph that a Diagnosis runs,
// with its operation's spec and the results of dependences, of which the later override the
// earlier. It uses only what the API has, so that agent and controller compute the same digest.
//
// It fails if a dependence has no results, or truncated ones: nobody can approve a plan that isn't
// shown completely.
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
