package policy

import (
	"bytes"
	"encoding/json"
)

// declared is the spec of an Operation in the form that is hashed: the fields that people write, by
// their API names, in a fixed order. It is a separate type, so that the API type may change in ways
// that manifests do not show: order of fields, omission of empty fields, Go types. So each version
// of Kernosis computes the same digest for the same manifest.
//
// A field added to the API later goes last. It is omitted if it is not declared or has its default,
// because the API server fills in defaults. So an approval survives an upgrade or rollback, unless
// the new field was declared; then the versions understand different plans.
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

// declare converts the JSON of an API spec to the form that is hashed. An unknown field is an
// error, because an approval would not cover it.
func declare(spec []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields()
	var out declared
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	return json.Marshal(&out)
}
