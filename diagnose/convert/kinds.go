package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

func (j *job) operationSet(from *operationSet) manifest.Object {
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

func (j *job) trigger(from *trigger) manifest.Object {
	template := &from.Spec.SourceTemplate
	for field, given := range map[string]bool{
		"commonEventTemplate":   template.CommonEventTemplate != nil,
		"common_event_template": template.OldCommonEventTemplate != nil,
	} {
		if given {
			j.lost("spec.sourceTemplate."+field, "CommonEvents have no counterpart, use a prometheusAlertTemplate or a kubernetesEventTemplate: the Trigger is left out")
			return nil
		}
	}
	to := &v1alpha1.Trigger{TypeMeta: typeMeta(v1alpha1.KindTrigger), ObjectMeta: j.metadata(&from.object)}
	to.Spec = v1alpha1.TriggerSpec{
		OperationSet: from.Spec.OperationSet, NodeName: from.Spec.NodeName, Parameters: j.parameters(from.Spec.Parameters),
		SourceTemplate: v1alpha1.SourceTemplate{
			PrometheusAlertTemplate: template.PrometheusAlertTemplate,
			KubernetesEventTemplate: template.KubernetesEventTemplate,
			CronTemplate:            template.CronTemplate,
		},
	}
	if template.CronTemplate == nil {
		j.note("spec", "a subject gets no second Diagnosis for 10m, and there are at most 20 in an hour, while KubeDiag had no limit: set cooldown and rateLimit to change that")
	}
	return to
}

// parameters returns the parameters, and reports those that only KubeDiag's processors use.
func (j *job) parameters(from map[string]string) v1alpha1.Parameters {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if strings.HasPrefix(name, "param.") {
			j.note("spec.parameters."+name, "it is a parameter of KubeDiag's own processors: those of built-ins have other names")
		}
	}
	return from
}

func (j *job) diagnosis(from *diagnosis) manifest.Object {
	to := &v1alpha1.Diagnosis{TypeMeta: typeMeta(v1alpha1.KindDiagnosis), ObjectMeta: j.metadata(&from.object)}
	to.Spec = v1alpha1.DiagnosisSpec{
		OperationSet: from.Spec.OperationSet, NodeName: from.Spec.NodeName, PodReference: from.Spec.PodReference,
		Parameters: j.parameters(from.Spec.Parameters),
	}
	if s := from.Spec.TargetSelector; s != nil {
		to.Spec.TargetSelector = &v1alpha1.TargetSelector{
			NodeSelector: s.NodeSelector, NodeNames: s.NodeNames, PodSelector: s.PodSelector, PodReferences: s.PodReferences,
		}
		if s.PodSelector != nil {
			j.note("spec.targetSelector.podSelector", "it selects pods of the Diagnosis' namespace: set namespaces to select others")
		}
	}
	j.note("", "it runs again when it is created; outside the system namespace it needs a podReference of its namespace and operations that are safe for tenants")
	return to
}
