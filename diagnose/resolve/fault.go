package resolve

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

// Fault is one mistake.
type Fault struct {
	// Reason is a word of the condition Accepted, as v1alpha1 has them: UnknownOperation.
	Reason  string
	Object  manifest.Object // an OperationSet or Operation
	Field   string          // as spec.adjacencyList[2].operation
	Message string          // one line
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s %s: %s: %s", f.Object.GetObjectKind().GroupVersionKind().Kind, f.Object.GetName(), f.Field, f.Message)
}

// Faults are all mistakes of a set and of the Operations that it uses; there is one at
// least.
type Faults []*Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each mistake.
func (fs Faults) Unwrap() []error {
	out := make([]error, len(fs))
	for i, f := range fs {
		out[i] = f
	}
	return out
}

// In returns an error of [Set] with the places in files of what it is about. Others are
// returned as they are.
func In(m *manifest.Set, err error) error {
	var faults Faults
	if !errors.As(err, &faults) {
		return err
	}
	var out document.Errors
	for _, f := range faults {
		out = append(out, m.At(f.Object, f.Field, "%s", f.Message))
	}
	out.Sort()
	return out
}

// ofGraph turns what is wrong with the graph into faults of the set.
func ofGraph(object manifest.Object, err error) error {
	var wrong graph.Faults
	if !errors.As(err, &wrong) {
		return err
	}
	var out Faults
	for _, f := range wrong {
		field := "spec.adjacencyList"
		if f.Index >= 0 {
			field += fmt.Sprintf("[%d]", f.Index)
			if f.Field != "" {
				field += "." + f.Field
			}
		}
		out = append(out, &Fault{Reason: string(f.Reason), Object: object, Field: field, Message: f.Message})
	}
	return out
}
