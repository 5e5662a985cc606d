package policy

import (
	"bytes"
	"encoding/json"
)

// declared is the spec of an Operation as it is part of a digest: the fields that people
// write, by their names in the API, in an order that stays. It is a type of its own, so that
// the API's may change in what a manifest does not show: the order of fields, what is left
// out where it is empty, Go types. Another version of Kernosis comes to the same digest of
// the same manifest.
//
// A field that the API gets later comes last here. It is left out where it is not declared,
// which includes its default: the API server fills that in. So an approval stays valid over
// an upgrade or a rollback, unless the field was declared; then the versions do not mean the
// same by the plan.
type declared struct {
	Processor   declaredProcessor `json:"processor"`
	Effect      string            `json:"effect,omitempty"`
	TenantSafe  bool              `json:"tenantSafe,omitempty"`
	Retry       *declaredRetry    `json:"retry,omitempty"`
	Dependences []string          `json:"dependences,omitempty"`
	Storage     *declaredStorage  `json:"storage,omitempty"`
}

type declaredProcessor struct {
	Builtin        *declaredBuiltin `json:"builtin,omitempty"`
	HTTPServer     *declaredServer  `json:"httpServer,omitempty"`
	ScriptRunner   *declaredScript  `json:"scriptRunner,omitempty"`
	TimeoutSeconds int64            `json:"timeoutSeconds,omitempty"`
}

type declaredBuiltin struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

type declaredServer struct {
	Address                 string          `json:"address,omitempty"`
	Port                    int64           `json:"port,omitempty"`
	Path                    string          `json:"path,omitempty"`
	Scheme                  string          `json:"scheme,omitempty"`
	CABundle                string          `json:"caBundle,omitempty"`
	ServerName              string          `json:"serverName,omitempty"`
	ClientCertificateSecret *declaredSecret `json:"clientCertificateSecret,omitempty"`
}

type declaredSecret struct {
	Name string `json:"name"`
}

type declaredScript struct {
	Script             string   `json:"script"`
	ArgKeys            []string `json:"argKeys,omitempty"`
	OperationResultKey string   `json:"operationResultKey,omitempty"`
}

type declaredRetry struct {
	Limit      int64  `json:"limit"`
	Backoff    string `json:"backoff,omitempty"`
	MaxBackoff string `json:"maxBackoff,omitempty"`
}

type declaredStorage struct {
	HostPath *declaredPath `json:"hostPath,omitempty"`
}

type declaredPath struct {
	Path string `json:"path"`
}

// declare returns the spec of an Operation, as the API has it, in the form that is hashed.
// A field that the form does not have is an error: nobody's approval would be about it.
func declare(spec []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields()
	var out declared
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	return json.Marshal(&out)
}
