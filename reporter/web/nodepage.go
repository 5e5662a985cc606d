package web

import (
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
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
			title: n.cfg.Node,
			sections: []link{
				{"problems", "Problems"}, {"conditions", "Conditions"}, {"sources", "Sources"}, {"diagnoses", "Diagnoses"}, {"timeline", "Timeline"},
			},
			command: "kernosis why node",
		},
		content: n.content, forget: n.forget, ended: n.cfg.Ended, beat: beatEvery,
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

// content reads the node's state and returns its view.
func (n *nodeContent) content() g.Node {
	disk := n.read()
	return h.Main(h.ID("state"),
		n.header(),
		problemSection(n.cfg.Problems()),
		conditionSection(n.cfg.Conditions()),
		sourceSection(n.cfg.Sources(), n.cfg.Degraded(), n.cfg.Losses()),
		disk.diagnoses.section(),
		timelineSection(disk.rows.rows, disk.rowsErr),
	)
}

func (n *nodeContent) header() g.Node {
	cost, runs := n.cfg.Cost(), time.Since(n.cfg.Started)
	cpu := strconv.FormatFloat(100*cost.CPU.Seconds()/runs.Seconds(), 'f', 2, 64)
	return h.Header(
		h.H1(text(n.cfg.Node)),
		facts(
			fact("Version", text(n.cfg.Version)),
			fact("Kernel", text(n.cfg.Kernel)),
			fact("Agent running since", since(n.cfg.Started)),
			g.If(cost.RSS > 0, fact("Memory (RSS)", text(display.Bytes(cost.RSS)))),
			g.If(cost.CPU > 0 && runs > 0, fact("CPU since start", text(cpu+" % of one CPU"))),
		),
		part("broken", h.Role("alert"), failure("The agent is not working", n.cfg.Check())),
	)
}

// onDisk is what the page shows of the state disk.
type onDisk struct {
	rows      timeline
	rowsErr   error
	diagnoses diagnoses
}

// read reads the state disk, and keeps the timeline for the next time.
func (n *nodeContent) read() onDisk {
	known := n.rows
	disk, err := bounded.Do(&n.reads, readWithin, func() (out onDisk, _ error) {
		out.rows, out.rowsErr = known.read(n.cfg.Journal)
		if n.cfg.Diagnoses != nil {
			out.diagnoses.newest, out.diagnoses.all, out.diagnoses.err = n.cfg.Diagnoses(maxDiagnoses)
		}
		return out, nil
	})
	if err != nil {
		disk = onDisk{rows: known, rowsErr: err, diagnoses: diagnoses{err: err}}
	}
	disk.diagnoses.off = n.cfg.Diagnoses == nil
	n.rows = disk.rows
	return disk
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
