package convert

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// kubediagVersion is the apiVersion of KubeDiag's kinds.
const kubediagVersion = "diagnosis.kubediag.org/v1"

// object has the fields that all of KubeDiag's kinds share.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Status          json.RawMessage   `json:"status"` // from its cluster
}

type operation struct {
	object `json:",inline"`
	Spec   operationSpec `json:"spec"`
}

type operationSpec struct {
	Processor   processor `json:"processor"`
	Dependences []string  `json:"dependences"`
	Storage     *struct {
		HostPath *struct {
			Path string `json:"path"`
		} `json:"hostPath"`
	} `json:"storage"`
}

type processor struct {
	HTTPServer     *httpServer   `json:"httpServer"`
	ScriptRunner   *scriptRunner `json:"scriptRunner"`
	Function       *function     `json:"function"`
	TimeoutSeconds *int32        `json:"timeoutSeconds"`

	// Fields of the API before httpServer, with the same meaning.
	ExternalIP   *string `json:"externalIP"`
	ExternalPort *int32  `json:"externalPort"`
	Path         *string `json:"path"`
	Scheme       *string `json:"scheme"`
}

type httpServer struct {
	Address *string `json:"address"`
	Port    *int32  `json:"port"`
	Path    *string `json:"path"`
	Scheme  *string `json:"scheme"`
}

type scriptRunner struct {
	Script             string   `json:"script"`
	ArgKeys            []string `json:"argKeys"`
	OperationResultKey *string  `json:"operationResultKey"`
}

type function struct {
	CodeSource map[string]string `json:"codeSource"`
	Runtime    string            `json:"runtime"`
}

type operationSet struct {
	object `json:",inline"`
	Spec   struct {
		AdjacencyList []node `json:"adjacencyList"`
	} `json:"spec"`
}

type node struct {
	ID          *int32  `json:"id"`
	To          []int32 `json:"to"`
	Operation   string  `json:"operation"`
	Dependences []int32 `json:"dependences"`
}

type trigger struct {
	object `json:",inline"`
	Spec   struct {
		OperationSet   string            `json:"operationSet"`
		NodeName       string            `json:"nodeName"`
		Parameters     map[string]string `json:"parameters"`
		SourceTemplate sourceTemplate    `json:"sourceTemplate"`
	} `json:"spec"`
}

// sourceTemplate uses our types where they are the same.
type sourceTemplate struct {
	PrometheusAlertTemplate *v1alpha1.PrometheusAlertTemplate `json:"prometheusAlertTemplate"`
	KubernetesEventTemplate *v1alpha1.KubernetesEventTemplate `json:"kubernetesEventTemplate"`
	CronTemplate            *v1alpha1.CronTemplate            `json:"cronTemplate"`
	CommonEventTemplate     json.RawMessage                   `json:"commonEventTemplate"`
	OldCommonEventTemplate  json.RawMessage                   `json:"common_event_template"`
}

type diagnosis struct {
	object `json:",inline"`
	Spec   struct {
		OperationSet   string                 `json:"operationSet"`
		NodeName       string                 `json:"nodeName"`
		PodReference   *v1alpha1.PodReference `json:"podReference"`
		TargetSelector *targetSelector        `json:"targetSelector"`
		Parameters     map[string]string      `json:"parameters"`
	} `json:"spec"`
}

type targetSelector struct {
	NodeSelector  *v1alpha1.LabelSelector `json:"nodeSelector"`
	NodeNames     []string                `json:"nodeNames"`
	PodSelector   *v1alpha1.LabelSelector `json:"podSelector"`
	PodReferences []v1alpha1.PodReference `json:"podReferences"`
}
