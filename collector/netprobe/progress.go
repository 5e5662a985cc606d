package netprobe

import (
	"context"
	"sync"
	"time"
)

// Progress is the progress of a running probe. Its zero value is ready for one run.
type Progress struct {
	ctx context.Context // of the run

	mu                   sync.Mutex
	r                    Result
	handshake, requested time.Time
	conns                []*conn // all connections; redirects cause more than one
	ended                bool    // connections made later are closed at once
}

// Phase returns the probe's current phase.
func (p *Progress) Phase() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Phase
}

func (p *Progress) enter(phase string) { p.note(func(r *Result) { r.Phase = phase }) }

func (p *Progress) note(fn func(*Result)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.r)
}

// end returns the probe's result. It reads what the kernel knows about the connection before
// closing it, unless the connection is closed already.
func (p *Progress) end(took time.Duration, err error) Result {
	p.mu.Lock()
	conns := p.conns
	p.ended = true
	p.mu.Unlock()
	for i, c := range conns {
		if i == len(conns)-1 {
			facts := c.facts()
			p.note(func(r *Result) { r.Conn = facts })
		}
		_ = c.Close() // nothing that was sent matters any more
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r.Took, p.r.Err = took, err
	if err == nil {
		p.r.Phase = PhaseDone
	}
	return p.r
}
