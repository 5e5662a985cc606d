package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	g "maragu.dev/gomponents"
)

const (
	// renderEvery is the shortest time between two renderings, however many clients there are.
	renderEvery = 200 * time.Millisecond
	// freshFor is how long a rendering is reused if nothing changes.
	freshFor = time.Second
	// idleAfter is the time without requests after which what is kept for clients is released.
	idleAfter = time.Minute
)

//go:embed assets
var assets embed.FS

// Page is a page that updates itself. One request at a time renders it, for all clients.
type Page struct {
	frame   frame
	content func() g.Node               // reads the state and returns its view
	forget  func()                      // releases what is kept for clients only; nil: nothing is
	routes  map[string]http.HandlerFunc // further handlers by path, relative to the page
	ended   <-chan struct{}             // ends all streams when closed
	beat    time.Duration               // clients fetch the state at least this often

	version atomic.Uint64 // of the state to show
	hub     hub

	turn  chan struct{} // held while rendering and while forgetting; it guards the next three fields
	last  *rendered
	began time.Time // when the latest rendering started
	idle  *time.Timer
}

func (p *Page) init() *Page {
	p.turn, p.hub.streams = make(chan struct{}, 1), map[chan struct{}]bool{}
	return p
}

// Changed signals that there is something new to show. It does not block and may be called with
// locks held. It does nothing if p is nil.
func (p *Page) Changed() {
	if p != nil {
		p.version.Add(1)
		p.hub.wake()
	}
}

// Routes returns the handlers by path, as patterns of [http.ServeMux] without a method. All
// paths within the page are relative.
func (p *Page) Routes() map[string]http.Handler {
	routes := map[string]http.HandlerFunc{
		"/{$}":             p.whole,
		"/state":           p.state,
		"/events":          p.events,
		"/page.css":        asset("page.css", "text/css; charset=utf-8"),
		"/page.js":         asset("page.js", "text/javascript; charset=utf-8"),
		"/icon.svg":        asset("icon.svg", "image/svg+xml"),
		"/problems/{name}": p.problem,
	}
	maps.Copy(routes, p.routes)
	out := make(map[string]http.Handler, len(routes))
	for pattern, h := range routes {
		out[pattern] = readOnly(h)
	}
	return out
}

// policy allows the page its own style and script and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// readOnly rejects methods other than GET and HEAD and sets the headers of all responses.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			head.Set("Allow", "GET, HEAD")
			http.Error(w, "read-only", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func asset(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeFileFS(w, r, assets, "assets/"+name)
	}
}

func (p *Page) whole(w http.ResponseWriter, r *http.Request) {
	now, err := p.current(r.Context())
	if err != nil {
		fail(w, r, err)
		return
	}
	write(w, render(p.frame.around(now.html)))
}

func (p *Page) state(w http.ResponseWriter, r *http.Request) {
	now, err := p.current(r.Context())
	if err != nil {
		fail(w, r, err)
		return
	}
	w.Header().Set("ETag", now.tag)
	if r.Header.Get("If-None-Match") == now.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, now.html)
}

func write(w http.ResponseWriter, html []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(html) // fails only if the client is gone
}

// fail responds with an error, if the client is still connected.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		http.Error(w, safe(err.Error()), http.StatusInternalServerError)
	}
}

type rendered struct {
	html    []byte
	tag     string // ETag
	at      time.Time
	version uint64
}

// current returns the current state. Concurrent requests share one rendering.
func (p *Page) current(ctx context.Context) (*rendered, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
		p.idle = time.AfterFunc(idleAfter, p.release)
	} else {
		p.idle.Reset(idleAfter)
	}
	// A change from here on causes another rendering.
	next := &rendered{version: p.version.Load(), at: p.began}
	next.html = render(p.content())
	next.tag = fmt.Sprintf(`"%x"`, sha256.Sum256(next.html))
	p.last = next
	return next, nil
}

// release drops what is kept for clients only, after a time without requests.
func (p *Page) release() {
	select {
	case p.turn <- struct{}{}:
	default:
		return // a request is being served
	}
	defer func() { <-p.turn }()
	p.last = nil
	if p.forget != nil {
		p.forget()
	}
}
