package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"
)

const (
	// renderEvery is the shortest time between two renderings, however many clients there are.
	renderEvery = 200 * time.Millisecond
	// freshFor is how long a rendering is reused if nothing changes.
	freshFor = time.Second
	// idleAfter is the time without requests after which what is kept for clients is released.
	idleAfter = time.Minute
)

// rendered is the state as HTML.
type rendered struct {
	html    []byte
	tag     string // ETag
	at      time.Time
	version uint64
}

// current returns the current state. Concurrent requests share one rendering.
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
	// A change from here on causes another rendering.
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

// forget releases what is kept for clients only, after a time without requests.
func (p *Page) forget() {
	select {
	case p.turn <- struct{}{}:
	default:
		return // a request is being served
	}
	defer func() { <-p.turn }()
	p.last = nil
	p.content.forget()
}
