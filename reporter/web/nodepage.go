package web

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/detector/problem"
)

// NodePageConfig configures the page of a node. Its functions must return copies and must not wait for
// a client. They are called only while the page is open somewhere.
type NodePageConfig struct {
	Node, Version, Kernel string
	Started               time.Time
	// Journal is the journal's folder.
	Journal string
	// Ended is closed when the agent stops, which ends all streams.
	Ended <-chan struct{}

	Problems   func() []problem.Problem
	Conditions func() []problem.Condition
	Sources    func() []Source
	// Degraded returns what the agent lacks, one item per line.
	Degraded func() []string
	Losses   func() []Loss
	Cost     func() Cost
	// Check returns why the agent does not work, or nil if it does.
	Check func() error

	// Diagnoses returns the newest Diagnoses first, limited to most, and how many there are in
	// all. The function is nil if Diagnoses are switched off.
	Diagnoses func(most int) (list []Diagnosis, all int, err error)
	// Drawing returns the graph of a run as SVG, or [fs.ErrNotExist].
	Drawing func(id string) ([]byte, error)
	// Forget is called when the page was not requested for a minute. It may be nil.
	Forget func()
}

// Source is a source of events that is not fully working.
type Source struct {
	Name string
	Up   bool
	Why  string
}

// Loss is what was lost since the agent started.
type Loss struct {
	What, Why string
	Count     uint64
}

// Cost is the agent's own resource usage.
type Cost struct {
	RSS uint64        // bytes; 0 if unknown
	CPU time.Duration // since the agent started
}

// NewNodePage returns the page of a node. It does not read anything yet.
func NewNodePage(cfg NodePageConfig) *Page { return (&nodeContent{cfg: cfg}).page() }

type nodeContent struct {
	cfg  NodePageConfig
	rows timeline

	reads, draws bounded.Calls
	drawing      sync.Mutex
}

func (n *nodeContent) page() *Page {
	p := &Page{
		frame: frame{
			Title: safe(n.cfg.Node),
			Sections: []section{
				{"problems", "Problems"}, {"conditions", "Conditions"}, {"sources", "Sources"}, {"diagnoses", "Diagnoses"}, {"timeline", "Timeline"},
			},
			Command:  "kernosis why node",
			template: "node.html",
		},
		view: n.view, forget: n.forget, ended: n.cfg.Ended, beat: beatEvery,
		routes: map[string]http.HandlerFunc{"/diagnoses/{name}": n.diagnosis},
	}
	return p.init()
}

func (n *nodeContent) forget() {
	n.rows = timeline{}
	if n.cfg.Forget != nil {
		n.cfg.Forget()
	}
}

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
