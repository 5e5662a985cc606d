package convert

import (
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func (j *job) trigger(from *trigger) *v1alpha1.Trigger {
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
