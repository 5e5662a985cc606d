package page

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"maps"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

//go:embed assets
var assets embed.FS

// Config configures the page of a node. Its functions must return copies and must not wait for a
// client. They are called only while the page is open somewhere.
type Config struct {
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

// Page is a page that updates itself. It is rendered by one request at a time, for all clients.
type Page struct {
	frame   frame
	content content
	ended   <-chan struct{}
	beat    time.Duration // clients fetch the state at least this often

	version atomic.Uint64 // of the state to show
	hub     hub
	parse   func() *template.Template

	turn  chan struct{} // held while rendering; it guards the next three fields and the content's view
	last  *rendered
	began time.Time // when the latest rendering started
	idle  *time.Timer
}

// frame is the static part of a page, around its state.
type frame struct {
	Title    string
	Sections []section // the skip link leads to the first one
	Command  string    // the command that explains the shown state
	template string    // renders the state
}

type section struct{ ID, Name string }

// content is the content of a page.
type content interface {
	// view returns the data for the state's template.
	view() any
	// forget releases what is kept for clients only.
	forget()
	// routes returns the handlers by path, relative to the page.
	routes() map[string]http.HandlerFunc
}

// New returns the page of a node. It does not read anything yet.
func New(cfg Config) *Page {
	return newPage(&nodeContent{cfg: cfg}, cfg.Ended, beatEvery, frame{
		Title: safe(cfg.Node),
		Sections: []section{
			{"problems", "Problems"}, {"conditions", "Conditions"}, {"sources", "Sources"}, {"diagnoses", "Diagnoses"}, {"timeline", "Timeline"},
		},
		Command:  "kernosis why node",
		template: "node.html",
	})
}

func newPage(c content, ended <-chan struct{}, beat time.Duration, f frame) *Page {
	return &Page{
		frame: f, content: c, ended: ended, beat: beat, turn: make(chan struct{}, 1),
		// Parsed on first use: an agent whose page is never opened does not need them.
		parse: sync.OnceValue(func() *template.Template {
			return template.Must(template.New("").ParseFS(assets, "assets/*.html"))
		}),
	}
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
	maps.Copy(routes, p.content.routes())
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
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := assets.ReadFile(path.Join("assets", name))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(text) // fails only if the client is gone
	}
}

// whole serves the page including its state.
func (p *Page) whole(w http.ResponseWriter, r *http.Request) {
	now, err := p.current(r.Context())
	if err != nil {
		fail(w, r, err)
		return
	}
	var b bytes.Buffer
	// template.HTML, so that it is not escaped again: html/template has rendered the state.
	state := template.HTML(now.html) //nolint:gosec // as said
	err = p.parse().ExecuteTemplate(&b, "page.html", map[string]any{"Frame": &p.frame, "State": state})
	write(w, r, b.Bytes(), err)
}

// state serves the changing part of the page.
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
	write(w, r, now.html, nil)
}

func write(w http.ResponseWriter, r *http.Request, html []byte, err error) {
	if err != nil {
		fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(html) // fails only if the client is gone
}

// fail responds with an error, if the client is still connected.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		http.Error(w, safe(err.Error()), http.StatusInternalServerError)
	}
}

// await waits for the turn to render.
func (p *Page) await(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
