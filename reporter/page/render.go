package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
)

const (
	// renderEvery is the shortest time between two renderings, however many clients ask.
	renderEvery = 200 * time.Millisecond
	// freshFor is how long a rendering is shown where nothing has changed.
	freshFor = time.Second
	// idleAfter is when what only clients need is given back.
	idleAfter = time.Minute
)

// rendered is the state as HTML.
type rendered struct {
	html    []byte
	tag     string // ETag
	at      time.Time
	version uint64
}

// current returns the state as it is now. Clients that ask together get the same one.
func (p *Page) current(ctx context.Context) (*rendered, error) {
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.turn }()
	if r := p.last; r != nil && r.version == p.version.Load() && time.Since(r.at) < freshFor {
		return r, nil
	}
	if wait := renderEvery - time.Since(p.began); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	p.began = time.Now()
	if p.idle == nil {
		p.idle = time.AfterFunc(idleAfter, p.forget)
	} else {
		p.idle.Reset(idleAfter)
	}
	// What changes from here on is rendered next time.
	next := &rendered{version: p.version.Load(), at: p.began}
	var b bytes.Buffer
	if err := p.parse().ExecuteTemplate(&b, "state.html", p.view()); err != nil {
		return nil, err
	}
	next.html = b.Bytes()
	next.tag = fmt.Sprintf(`"%x"`, sha256.Sum256(next.html))
	p.last = next
	return next, nil
}

// forget gives back what only clients need: nobody has asked for a while.
func (p *Page) forget() {
	select {
	case p.turn <- struct{}{}:
	default:
		return // somebody asks now
	}
	defer func() { <-p.turn }()
	p.last, p.rows = nil, timeline{}
	if p.cfg.Forget != nil {
		p.cfg.Forget()
	}
}

// view collects what is shown. The turn is held.
func (p *Page) view() *view {
	v := &view{
		Node: safe(p.cfg.Node), Version: safe(p.cfg.Version), Kernel: safe(p.cfg.Kernel), Started: moment{p.cfg.Started},
		Off: p.cfg.Diagnoses == nil,
	}
	if err := p.cfg.Check(); err != nil {
		v.Broken = safe(err.Error())
	}
	v.cost(p.cfg.Cost(), time.Since(p.cfg.Started))
	v.conditions(p.cfg.Conditions())
	v.problems(p.cfg.Problems())
	v.sources(p.cfg.Sources(), p.cfg.Degraded())
	v.losses(p.cfg.Losses())
	type read struct {
		rows           timeline
		rowsErr        error
		diagnoses      []Diagnosis
		all            int
		diagnosesError error
	}
	known := p.rows
	r, err := bounded.Do(&p.reads, readWithin, func() (r read, _ error) {
		r.rows, r.rowsErr = known.read(p.cfg.Journal)
		if p.cfg.Diagnoses != nil {
			r.diagnoses, r.all, r.diagnosesError = p.cfg.Diagnoses(maxDiagnoses)
		}
		return r, nil
	})
	if err != nil {
		r.rows, r.rowsErr, r.diagnosesError = known, err, err
	}
	p.rows = r.rows
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
