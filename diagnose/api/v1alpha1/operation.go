package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kernosis
// +kubebuilder:printcolumn:name="Builtin",type=string,JSONPath=`.spec.processor.builtin.name`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.processor.httpServer.address`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effect`
// +kubebuilder:printcolumn:name="Tenant-Safe",type=boolean,JSONPath=`.spec.tenantSafe`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Operation is a step that graphs of diagnoses are made of: something built in, a web
// server that is called, or a script.
type Operation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's own.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what the operation does.
	// +required
	Spec OperationSpec `json:"spec"`
}

// +kubebuilder:object:root=true

// OperationList is a list of Operations.
type OperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Operation `json:"items"`
}

// OperationSpec says what an operation does.
//
// +kubebuilder:validation:XValidation:rule="!has(self.effect) || !has(self.processor.builtin)",fieldPath=".effect",message="a built-in has an effect of its own"
// +kubebuilder:validation:XValidation:rule="!self.tenantSafe || has(self.processor.builtin) || (has(self.effect) && self.effect == 'Collect')",fieldPath=".tenantSafe",message="only an operation whose effect is Collect can be safe for tenants"
type OperationSpec struct {
	// processor is what runs.
	// +required
	Processor Processor `json:"processor"`

	// effect is what the operation may change: Collect and Check change nothing, and a
	// Check fails where its cause isn't so; Remediate is held to the RemediationPolicy. A
	// built-in has its own; for a server and a script Remediate is assumed where nothing
	// is said.
	// +optional
	Effect Effect `json:"effect,omitempty"`

	// tenantSafe allows Diagnoses outside the system namespace to run the operation, on a
	// pod of their namespace. A built-in must be made for that as well.
	// +optional
	// +default=false
	TenantSafe bool `json:"tenantSafe,omitempty"`

	// retry says how often the operation is tried again where it failed. One whose
	// outcome isn't known, and a Check that answers no, are not tried again.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// dependences are operations that must have run before in the same path, and whose
	// results this one gets. A node of an OperationSet may name nodes instead.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Dependences []string `json:"dependences,omitempty"`

	// storage is where the node keeps results and files, besides the Diagnosis' status. Without
	// it they are in the agent's state folder.
	// +optional
	Storage *Storage `json:"storage,omitempty"`
}

// Effect is what an operation may change.
//
// +kubebuilder:validation:Enum=Collect;Check;Remediate
type Effect string

// Effects.
const (
	EffectCollect   Effect = "Collect"
	EffectCheck     Effect = "Check"
	EffectRemediate Effect = "Remediate"
)

// DeclaredEffect returns the effect of an operation that is no built-in: what is said,
// and Remediate where nothing is. For a built-in it returns the empty one.
func (s *OperationSpec) DeclaredEffect() Effect {
	if s.Effect == "" && s.Processor.Builtin == nil {
		return EffectRemediate
	}
	return s.Effect
}

// Processor is what runs an operation. Exactly one of its ways is given.
//
// +kubebuilder:validation:ExactlyOneOf=builtin;httpServer;scriptRunner
type Processor struct {
	// builtin names an operation that is part of Kernosis.
	// +optional
	Builtin *Builtin `json:"builtin,omitempty"`

	// httpServer is a web server that is called.
	// +optional
	HTTPServer *HTTPServer `json:"httpServer,omitempty"`

	// scriptRunner is a script that runs on the node, where that is enabled.
	// +optional
	ScriptRunner *ScriptRunner `json:"scriptRunner,omitempty"`

	// timeoutSeconds is after how many seconds one try is given up.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// DefaultTimeoutSeconds is the time-out of an operation that names none.
const DefaultTimeoutSeconds = 30

// Builtin names an operation that is part of Kernosis.
type Builtin struct {
	// name is the built-in's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// parameters are fixed for this operation: neither a Diagnosis nor an earlier
	// operation's result can replace them.
	// +optional
	Parameters Parameters `json:"parameters,omitempty"`
}

// Parameters are inputs of operations by name.
//
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z0-9_]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9_])?$'))",message="a name is up to 128 letters, digits, and . _ - / between them"
type Parameters map[string]ParameterValue

// ParameterValue is the text of a parameter.
//
// +kubebuilder:validation:MaxLength=4096
type ParameterValue = string

// HTTPServer is a web server that is called with a POST of a JSON object (parameters and
// results of dependences) and answers 200 with a JSON object of strings.
//
// +kubebuilder:validation:XValidation:rule="self.scheme == 'https' || !(has(self.caBundle) || has(self.serverName) || has(self.clientCertificateSecret))",fieldPath=".scheme",message="caBundle, serverName and clientCertificateSecret need the scheme https"
type HTTPServer struct {
	// address is an IP address or a DNS name. By default the node itself: a server that
	// a DaemonSet runs in the host's network.
	// +optional
	// +default="127.0.0.1"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`
	Address string `json:"address,omitempty"`

	// port is that of the server; 80 or 443, as the scheme has it, where none is given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path is that of the URL.
	// +optional
	// +default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path,omitempty"`

	// scheme is http or https. The server's certificate is always checked.
	// +optional
	// +default="http"
	// +kubebuilder:validation:Enum=http;https
	Scheme string `json:"scheme,omitempty"`

	// caBundle has the certificates, as PEM, of the authorities that the server's
	// certificate is checked with. Where it is absent: ca.crt of
	// clientCertificateSecret, or the node's own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	CABundle []byte `json:"caBundle,omitempty"`

	// serverName is the name that the server's certificate must have; the address where
	// it is absent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	ServerName string `json:"serverName,omitempty"`

	// clientCertificateSecret is a Secret of the system namespace, of the type
	// kubernetes.io/tls: its tls.crt and tls.key are shown to the server, and its ca.crt,
	// if it has one, is what the server is checked with where caBundle is absent.
	// +optional
	ClientCertificateSecret *SecretReference `json:"clientCertificateSecret,omitempty"`
}

// SecretReference names a Secret of the system namespace.
type SecretReference struct {
	// name is the Secret's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// ScriptRunner is a script that runs on the node.
type ScriptRunner struct {
	// script is the text of a shell script.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script"`

	// argKeys name what the script gets as arguments, in order: parameters, or results of
	// operations that it depends on. None: it gets no argument.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	ArgKeys []string `json:"argKeys,omitempty"`

	// operationResultKey names the results: operation.KEY.output has what the script
	// wrote, operation.KEY.error why it failed. None: there are no results.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`
	OperationResultKey string `json:"operationResultKey,omitempty"`
}

// Retry says how often an operation is tried again, and when.
//
// +kubebuilder:validation:XValidation:rule="duration(self.maxBackoff) >= duration(self.backoff)",fieldPath=".maxBackoff",message="must not be less than backoff"
type Retry struct {
	// limit is how often it is tried again after the first failure.
	// +optional
	// +default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Limit int32 `json:"limit"`

	// backoff is the time before the first new try; it doubles from one to the next.
	// +optional
	// +default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('10m')",message="must be from 10ms to 10m"
	Backoff metav1.Duration `json:"backoff,omitzero"`

	// maxBackoff is what the time does not grow beyond.
	// +optional
	// +default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="must be from 10ms to 1h"
	MaxBackoff metav1.Duration `json:"maxBackoff,omitzero"`
}

// Storage is where results are kept on the node.
type Storage struct {
	// hostPath is a folder of the node.
	// +optional
	HostPath *HostPath `json:"hostPath,omitempty"`
}

// HostPath is a folder of the node.
type HostPath struct {
	// path is that of the folder, below the agent's diagnose-storage-dir, which is
	// diagnose/storage in its state folder if it is not set. An absolute path must be below it,
	// too. Its parts have letters, digits, '.', '_' and '-', and none is a symbolic link. In it
	// each Diagnosis has a folder with its UID (or its name, where the agent has made it).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(p, p == '..')",message="must not have a part .."
	Path string `json:"path"`
}
