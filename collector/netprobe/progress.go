package netprobe

import (
	"context"
	"sync"
	"time"
)

// Progress is a probe under way. Its zero value is for one run.
type Progress struct {
	ctx context.Context // of the run

	mu                   sync.Mutex
	r                    Result
	handshake, requested time.Time
	conns                []*conn // all of them; redirects bring more than one
	ended                bool    // one that is made later is nobody's
}

// Phase returns how far the probe is.
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

// end is the probe's result. What the kernel knows of the connection is asked before it is
// closed, unless that was done on the way.
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
