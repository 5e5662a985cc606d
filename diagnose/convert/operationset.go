package convert

import (
	"fmt"
	"slices"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func (j *job) operationSet(from *operationSet) *v1alpha1.OperationSet {
	to := &v1alpha1.OperationSet{TypeMeta: typeMeta(v1alpha1.KindOperationSet), ObjectMeta: j.metadata(&from.object)}
	to.Spec.AdjacencyList = make([]v1alpha1.Node, 0, len(from.Spec.AdjacencyList))
	for i, n := range from.Spec.AdjacencyList {
		at := fmt.Sprintf("spec.adjacencyList[%d]", i)
		// KubeDiag's webhook also renumbers nodes.
		if id := deref(n.ID); id != 0 && int(id) != i {
			j.note(at+".id", "%d becomes %d, the node's position, which edges refer to", id, i)
		}
		if i == 0 && n.Operation != "" {
			j.lost(at+".operation", "the first node is the start and runs nothing, as with KubeDiag")
			n.Operation = ""
		}
		to.Spec.AdjacencyList = append(to.Spec.AdjacencyList, v1alpha1.Node{
			ID: int32(min(i, v1alpha1.MaxNodes)), To: j.once(n.To, at+".to"), Operation: n.Operation, Dependences: j.once(n.Dependences, at+".dependences"),
		})
	}
	return to
}

// once returns the ids without duplicates, which have no meaning.
func (j *job) once(ids []int32, field string) []int32 {
	var out []int32
	for _, id := range ids {
		if slices.Contains(out, id) {
			j.note(field, "%d is listed twice", id)
			continue
		}
		out = append(out, id)
	}
	return out
}
