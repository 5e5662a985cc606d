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
	// Reason is a reason of the condition Accepted in v1alpha1, such as UnknownOperation.
	Reason  string
	Object  manifest.Object // an OperationSet or Operation
	Field   string          // such as spec.adjacencyList[2].operation
	Message string          // one line
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s %s: %s: %s", f.Object.GetObjectKind().GroupVersionKind().Kind, f.Object.GetName(), f.Field, f.Message)
}

// Faults are all mistakes in a set and in the Operations that it uses. There is at least one.
type Faults []*Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// In adds file positions to an error of [Set]. It returns other errors unchanged.
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

// ofGraph turns the error of [graph.Build] into faults of the set.
func ofGraph(object manifest.Object, err error) Faults {
	var out Faults
	wrong, _ := errors.AsType[graph.Faults](err) // there is no other
	for _, f := range wrong {
		field := "spec.adjacencyList"
		if f.Index >= 0 {
			field += fmt.Sprintf("[%d]", f.Index)
			if f.Field != "" {
				field += "." + f.Field
			}
		}
		out = append(out, &Fault{Reason: f.Reason, Object: object, Field: field, Message: f.Message})
	}
	return out
}
