package podspec

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/display"
)

// maxShown bounds what an error quotes of a pod.
const maxShown = 200

// Error is an error in one field of a pod.
type Error struct {
	Namespace, Name string
	Container       string // empty: the error concerns the pod itself
	Probe           string // startup, liveness or readiness; empty: it concerns the container itself
	Field           string // relative to pod, container or probe: "httpGet.port"
	// Path is the field's place in the object, "spec.containers[0].livenessProbe.httpGet.port".
	Path string
	Msg  string
}

// Error returns "pod shop/web-0: container web: liveness probe: httpGet.port: …".
func (e *Error) Error() string {
	text := "pod " + display.Safe(e.Namespace+"/"+e.Name, maxShown)
	if e.Container != "" {
		text += ": container " + display.Safe(e.Container, maxShown)
	}
	if e.Probe != "" {
		text += ": " + e.Probe + " probe"
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Msg
}

// place is a position in a pod, for errors.
type place struct {
	namespace, name, container, probe string
	path                              string
}

func (p place) wrong(field, format string, args ...any) *Error {
	path := field
	if p.path != "" {
		path = p.path
		if field != "" {
			path += "." + field
		}
	}
	return &Error{
		Namespace: p.namespace, Name: p.name, Container: p.container, Probe: p.probe,
		Field: field, Path: path, Msg: fmt.Sprintf(format, args...),
	}
}

// quoted quotes a text of a pod for an error.
func quoted(s string) string { return `"` + display.Safe(s, maxShown) + `"` }
