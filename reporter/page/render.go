package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"
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
	if err := p.parse().ExecuteTemplate(&b, p.frame.template, p.content.view()); err != nil {
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
	p.last = nil
	p.content.forget()
}
