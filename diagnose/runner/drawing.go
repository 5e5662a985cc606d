package runner

import (
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
)

// Drawing returns a picture of a Diagnosis: its graph with the nodes' effects ("" if unknown), the
// state of each node, and the path that succeeded.
func Drawing(title string, g *graph.Graph, effect func(id int) v1alpha1.Effect, s *v1alpha1.DiagnosisStatus) *draw.Drawing {
	d := &draw.Drawing{Title: title, Graph: g, Notes: make([]draw.Note, g.Len())}
	for id := 1; id < g.Len(); id++ {
		d.Notes[id].Effect = string(effect(id))
	}
	for i := range s.Results {
		r := &s.Results[i]
		if id := int(r.ID); id > 0 && id < g.Len() { // others may write a status, too
			d.Notes[id].State, d.Notes[id].Message = string(r.State), r.Message
		}
	}
	for _, id := range s.SucceededPath {
		d.Path = append(d.Path, int(id))
	}
	return d
}
