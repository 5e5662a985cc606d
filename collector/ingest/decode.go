package ingest

import (
	"encoding/json"
	"errors"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// wireStatus is a report as it is received: values with a format of their own are parsed later, so
// that a mistake in them is reported with its field.
type wireStatus struct {
	Source     *string         `json:"source"`
	ValidFor   *string         `json:"validFor"`
	Events     []wireEvent     `json:"events"`
	Conditions []wireCondition `json:"conditions"`
}

type wireEvent struct {
	Severity  string `json:"severity"`
	Timestamp string `json:"timestamp"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

type wireCondition struct {
	Type       string          `json:"type"`
	Status     json.RawMessage `json:"status"` // true, false, "True", "False", "Unknown"
	Transition string          `json:"transition"`
	Reason     string          `json:"reason"`
	Message    string          `json:"message"`
}

// decode decodes a report as the API server decodes objects: field names are case-sensitive, and
// unknown or repeated ones are mistakes.
func decode(body []byte) (*wireStatus, []client.Field) {
	var w wireStatus
	strict, err := kjson.UnmarshalStrict(body, &w)
	if err != nil {
		return nil, []client.Field{decodeMistake(err)}
	}
	var fields []client.Field
	for _, e := range strict {
		f := client.Field{Message: display.Safe(e.Error(), 200)}
		if fe, ok := errors.AsType[kjson.FieldError](e); ok {
			f.Field = display.Safe(fe.FieldPath(), 100)
			f.Message = "unknown field"
			if strings.HasPrefix(e.Error(), "duplicate") {
				f.Message = "duplicate field"
			}
		}
		fields = append(fields, f)
	}
	if len(fields) > 0 {
		return nil, fields
	}
	return &w, nil
}

func decodeMistake(err error) client.Field {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return client.Field{Field: display.Safe(e.Field, 100), Message: "got " + display.Safe(e.Value, 60) + ", want " + wanted(e.Type.Kind().String())}
	}
	return client.Field{Message: "not JSON: " + display.Safe(strings.TrimPrefix(err.Error(), "json: "), 200)}
}

// wanted returns JSON's name for a Go kind.
func wanted(kind string) string {
	switch kind {
	case "slice":
		return "an array"
	case "struct":
		return "an object"
	}
	return "a " + kind
}
