package page

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
)

// nodeContent is the content of a node's page.
type nodeContent struct {
	cfg  Config
	rows timeline

	reads, draws bounded.Calls
	drawing      sync.Mutex
}

func (n *nodeContent) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/diagnoses/{name}": n.diagnosis}
}

func (n *nodeContent) forget() {
	n.rows = timeline{}
	if n.cfg.Forget != nil {
		n.cfg.Forget()
	}
}

// view collects the data to show.
func (n *nodeContent) view() any {
	v := &view{
		Node: safe(n.cfg.Node), Version: safe(n.cfg.Version), Kernel: safe(n.cfg.Kernel), Started: moment{n.cfg.Started},
		Off: n.cfg.Diagnoses == nil,
	}
	if err := n.cfg.Check(); err != nil {
		v.Broken = safe(err.Error())
	}
	v.cost(n.cfg.Cost(), time.Since(n.cfg.Started))
	v.conditions(n.cfg.Conditions())
	v.problems(n.cfg.Problems())
	v.sources(n.cfg.Sources(), n.cfg.Degraded())
	v.losses(n.cfg.Losses())
	type read struct {
		rows           timeline
		rowsErr        error
		diagnoses      []Diagnosis
		all            int
		diagnosesError error
	}
	known := n.rows
	r, err := bounded.Do(&n.reads, readWithin, func() (r read, _ error) {
		r.rows, r.rowsErr = known.read(n.cfg.Journal)
		if n.cfg.Diagnoses != nil {
			r.diagnoses, r.all, r.diagnosesError = n.cfg.Diagnoses(maxDiagnoses)
		}
		return r, nil
	})
	if err != nil {
		r.rows, r.rowsErr, r.diagnosesError = known, err, err
	}
	n.rows = r.rows
	v.Timeline, v.MaxRows = r.rows.rows, maxRows
	v.TimelineError, v.DiagnosesError = why(r.rowsErr), why(r.diagnosesError)
	v.diagnoses(r.diagnoses, r.all)
	return v
}

func why(err error) string {
	if err == nil {
		return ""
	}
	return safe(err.Error())
}

// drawWithin is how long drawing a graph may take: the run is on the state disk, which may hang.
const drawWithin = 2 * time.Second

// diagnosis serves the graph of a run.
func (n *nodeContent) diagnosis(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutSuffix(r.PathValue("name"), ".svg")
	if !ok || n.cfg.Drawing == nil {
		http.NotFound(w, r)
		return
	}
	// One at a time: the layout of a large graph takes CPU.
	n.drawing.Lock()
	defer n.drawing.Unlock()
	if r.Context().Err() != nil {
		return
	}
	svg, err := bounded.Do(&n.draws, drawWithin, func() ([]byte, error) { return n.cfg.Drawing(id) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.NotFound(w, r)
	case err != nil:
		fail(w, r, err)
	default:
		w.Header().Set("Content-Type", "image/svg+xml")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		_, _ = w.Write(svg) // fails only if the client is gone
	}
}
