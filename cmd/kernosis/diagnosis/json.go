package diagnosis

import "github.com/kernosis/kernosis/diagnose/api/v1alpha1"

// Document is a run as JSON or YAML.
type Document struct {
	ID           string            `json:"id"`
	OperationSet string            `json:"operationSet,omitempty"`
	Node         string            `json:"node,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	// Reason and Message are those of the condition Complete; empty while the run continues.
	Reason   string          `json:"reason,omitempty"`
	Message  string          `json:"message,omitempty"`
	Excluded []ExcludedCause `json:"excluded,omitempty"`
	Files    []File          `json:"files,omitempty"`
	Graph    []Node          `json:"graph"`
	// Status is the status as in a Diagnosis: phase, verdict, paths, results.
	Status v1alpha1.DiagnosisStatus `json:"status"`
}

type ExcludedCause struct {
	ID        int    `json:"id"`
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

type File struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

type Node struct {
	ID          int    `json:"id"`
	Operation   string `json:"operation,omitempty"`
	To          []int  `json:"to,omitempty"`
	Dependences []int  `json:"dependences,omitempty"`
}

func (v *View) document() *Document {
	d := &Document{
		ID: v.Report.ID, OperationSet: v.Set, Node: v.Node, Parameters: v.Parameters, Reason: v.Report.Reason, Message: v.Report.Message,
	}
	v.Report.Status(&d.Status)
	for _, e := range v.Report.Excluded() {
		d.Excluded = append(d.Excluded, ExcludedCause{e.ID, e.Operation, e.Reason, e.Message})
	}
	for i := range v.Artifacts {
		a := &v.Artifacts[i]
		d.Files = append(d.Files, File{v.Path(a), a.Size, a.SHA256, a.Truncated})
	}
	for id := range v.Graph.Len() {
		n := v.Graph.Node(id)
		d.Graph = append(d.Graph, Node{n.ID, n.Operation, n.To, n.Dependences})
	}
	return d
}

// Documents returns the documents of runs. An unreadable run has only its ID and the error.
func Documents(views []*View) []any {
	list := []any{} // encode an empty list as []
	for _, v := range views {
		if v.Err != nil {
			list = append(list, map[string]string{"id": v.Report.ID, "error": v.Err.Error()})
			continue
		}
		list = append(list, v.document())
	}
	return list
}
