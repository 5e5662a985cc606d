package convert

import (
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func (j *job) diagnosis(from *diagnosis) *v1alpha1.Diagnosis {
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
