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

// Operation is a step of a diagnosis: a built-in, a web server that is called, or a script.
type Operation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies what the operation does.
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

// OperationSpec specifies what an operation does.
//
// +kubebuilder:validation:XValidation:rule="!has(self.effect) || !has(self.processor.builtin)",fieldPath=".effect",message="must not be set: a built-in declares its own effect"
// +kubebuilder:validation:XValidation:rule="!self.tenantSafe || has(self.processor.builtin) || (has(self.effect) && self.effect == 'Collect')",fieldPath=".tenantSafe",message="only an operation whose effect is Collect can be safe for tenants"
type OperationSpec struct {
	// processor is what runs: exactly one of builtin, httpServer and scriptRunner.
	// +required
	Processor Processor `json:"processor"`

	// effect is what the operation may change. Collect and Check change nothing; a Check
	// fails if its cause does not apply. Remediate is subject to RemediationPolicies.
	// Defaults to Remediate for web servers and scripts; must be unset for a built-in, which
	// has its own.
	// +optional
	Effect Effect `json:"effect,omitempty"`

	// tenantSafe allows Diagnoses outside the system namespace to run the operation on a pod
	// of their namespace. A built-in must be tenant-safe itself, too.
	// +optional
	// +default=false
	TenantSafe bool `json:"tenantSafe,omitempty"`

	// retry specifies how often a failed operation is retried. A Check that excludes its
	// cause, a Remediate and an unknown outcome are not retried.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// dependences lists operations that must run before this one on every path to it. Their
	// results are passed to it. A node of an OperationSet may list nodes instead.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Dependences []string `json:"dependences,omitempty"`

	// storage specifies where the node keeps results and files, besides the Diagnosis'
	// status. Defaults to the agent's state folder.
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

// DeclaredEffect returns the effect of an operation that is not a built-in: the declared one,
// or Remediate if there is none. For a built-in it returns the empty effect.
func (s *OperationSpec) DeclaredEffect() Effect {
	if s.Effect == "" && s.Processor.Builtin == nil {
		return EffectRemediate
	}
	return s.Effect
}

// Processor specifies what runs an operation. Exactly one of its members is required.
//
// +kubebuilder:validation:ExactlyOneOf=builtin;httpServer;scriptRunner
type Processor struct {
	// builtin is an operation that is part of Kernosis.
	// +optional
	Builtin *Builtin `json:"builtin,omitempty"`

	// httpServer is a web server to call.
	// +optional
	HTTPServer *HTTPServer `json:"httpServer,omitempty"`

	// scriptRunner is a script to run on the node, if scripts are enabled there.
	// +optional
	ScriptRunner *ScriptRunner `json:"scriptRunner,omitempty"`

	// timeoutSeconds limits the duration of each attempt, in seconds.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// DefaultTimeoutSeconds is the timeout of an operation that specifies none.
const DefaultTimeoutSeconds = 30

// Builtin names an operation that is part of Kernosis.
type Builtin struct {
	// name is the built-in's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// parameters are fixed for this operation. Neither a Diagnosis nor results of earlier
	// operations override them.
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

// HTTPServer is a web server. It receives a POST with a JSON object (parameters and results
// of dependences) and answers 200 with a JSON object of strings.
//
// +kubebuilder:validation:XValidation:rule="self.scheme == 'https' || !(has(self.caBundle) || has(self.serverName) || has(self.clientCertificateSecret))",fieldPath=".scheme",message="caBundle, serverName and clientCertificateSecret need the scheme https"
type HTTPServer struct {
	// address is an IP address or DNS name. Defaults to the node itself, for a server that a
	// DaemonSet runs in the host network.
	// +optional
	// +default="127.0.0.1"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`
	Address string `json:"address,omitempty"`

	// port is the server's port. Defaults to 80 for http and 443 for https.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path is the URL's path.
	// +optional
	// +default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path,omitempty"`

	// scheme is http or https. The server's certificate is always verified.
	// +optional
	// +default="http"
	// +kubebuilder:validation:Enum=http;https
	Scheme string `json:"scheme,omitempty"`

	// caBundle is a PEM bundle of CA certificates that verify the server. Defaults to ca.crt
	// of clientCertificateSecret, else to the node's own CAs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	CABundle []byte `json:"caBundle,omitempty"`

	// serverName is the name that the server's certificate must have. Defaults to address.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	ServerName string `json:"serverName,omitempty"`

	// clientCertificateSecret is a Secret of type kubernetes.io/tls in the system namespace.
	// Its tls.crt and tls.key are the client certificate; its ca.crt, if any, verifies the
	// server if caBundle is unset.
	// +optional
	ClientCertificateSecret *SecretReference `json:"clientCertificateSecret,omitempty"`
}

// SecretReference names a Secret in the system namespace.
type SecretReference struct {
	// name is the Secret's name.
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

	// argKeys lists the script's arguments in order, as names of parameters or of results of
	// dependences. If empty, the script gets no arguments.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	ArgKeys []string `json:"argKeys,omitempty"`

	// operationResultKey names the results: operation.KEY.output is what the script wrote,
	// operation.KEY.error why it failed. If unset, there are no results.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`
	OperationResultKey string `json:"operationResultKey,omitempty"`
}

// Retry specifies how often an operation is retried, and when.
//
// +kubebuilder:validation:XValidation:rule="duration(self.maxBackoff) >= duration(self.backoff)",fieldPath=".maxBackoff",message="must not be less than backoff"
type Retry struct {
	// limit is the maximum number of retries after the first failure.
	// +optional
	// +default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Limit int32 `json:"limit"`

	// backoff is the delay before the first retry. It doubles with each retry.
	// +optional
	// +default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('10m')",message="must be from 10ms to 10m"
	Backoff metav1.Duration `json:"backoff,omitzero"`

	// maxBackoff limits the delay between retries.
	// +optional
	// +default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="must be from 10ms to 1h"
	MaxBackoff metav1.Duration `json:"maxBackoff,omitzero"`
}

// Storage specifies where results are kept on the node.
type Storage struct {
	// hostPath is a folder on the node.
	// +optional
	HostPath *HostPath `json:"hostPath,omitempty"`
}

// HostPath is a folder on the node.
type HostPath struct {
	// path is the folder's path below the agent's diagnose-storage-dir, which defaults to
	// diagnose/storage in its state folder. An absolute path must be below it, too. Its parts
	// have letters, digits, '.', '_' and '-', and none is a symbolic link. Each Diagnosis
	// gets a subfolder named by its UID (or its name, if the agent created it).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(p, p == '..')",message="must not contain a .. segment"
	Path string `json:"path"`
}
