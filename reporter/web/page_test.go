package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// node is the node that a page shows.
type node struct {
	mu       sync.Mutex
	problems []problem.Problem
	renders  int // how often the problems were requested
	cfg      NodePageConfig
}

func (n *node) fire(p ...problem.Problem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.problems = append(n.problems, p...)
}

func (n *node) rendered() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renders
}

// newNode returns a node without problems.
func newNode(tb testing.TB) *node {
	n := &node{}
	n.cfg = NodePageConfig{
		Node: "n7", Version: "v1", Kernel: "6.12.1", Started: time.Now(), Journal: tb.TempDir(),
		Problems: func() []problem.Problem {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.renders++
			return append([]problem.Problem(nil), n.problems...)
		},
		Conditions: func() []problem.Condition { return nil },
		Sources:    func() []Source { return nil },
		Degraded:   func() []string { return nil },
		Losses:     func() []Loss { return nil },
		Cost:       func() Cost { return Cost{RSS: 40 << 20, CPU: time.Second} },
		Check:      func() error { return nil },
	}
	return n
}

func firing(i int, s problem.Severity) problem.Problem {
	at := time.Date(2026, 1, 2, 3, 4, i%60, 0, time.UTC)
	return problem.Problem{
		Rule: "oom-kill", Group: strconv.Itoa(i), Reason: "OOMKilling", Message: fmt.Sprintf("kill %d", i), Severity: s, Doc: "problems/OOMKilling",
		State: problem.Firing, Subject: fmt.Sprintf("pod shop/web-%d", i), FirstSeen: at, Since: at, Count: 3,
	}
}

// handler serves the page as the agent's server does.
func handler(p *Page) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range p.Routes() {
		mux.Handle(pattern, h)
	}
	return mux
}

func get(t *testing.T, p *Page, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	handler(p).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// body returns the response at a path.
func body(t *testing.T, p *Page, path string) string {
	t.Helper()
	w := get(t, p, path)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// hostile contains what must neither take effect nor be invisible: markup, quotes, a terminal
// escape, a bidirectional override, an invalid byte.
const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{.}}\x1b[31m\u202egnp.exe\xff&amp;"

// everything returns a node in which all texts are hostile.
func everything(t *testing.T) *node {
	n := newNode(t)
	n.cfg.Node, n.cfg.Version, n.cfg.Kernel = hostile, hostile, hostile
	bad := problem.Problem{
		Rule: hostile, Group: hostile, Reason: hostile, Message: hostile, Severity: problem.Severity(hostile), State: problem.Firing,
		Subject: hostile, Doc: "javascript:alert(1)", SuppressedBy: hostile, Since: time.Now(), FirstSeen: time.Now(),
	}
	n.fire(bad)
	condition := problem.Condition{Type: hostile, Status: problem.Status(hostile), Reason: hostile, Message: hostile, LastTransition: time.Now()}
	n.cfg.Conditions = func() []problem.Condition { return []problem.Condition{condition} }
	n.cfg.Sources = func() []Source { return []Source{{Name: hostile, Why: hostile}, {Name: "good", Up: true}} }
	n.cfg.Degraded = func() []string { return []string{hostile} }
	n.cfg.Losses = func() []Loss { return []Loss{{What: hostile, Why: hostile, Count: 7}} }
	n.cfg.Check = func() error { return errors.New(hostile) }
	n.cfg.Diagnoses = func(int) ([]Diagnosis, int, error) {
		return []Diagnosis{{
			ID: hostile, Name: hostile, Trigger: hostile, OperationSet: hostile, Subject: hostile, Phase: hostile, Started: time.Now(), Ended: time.Now(),
			Cause: &Cause{hostile, hostile}, Excluded: []Cause{{hostile, hostile}}, Path: hostile, Repairs: []string{hostile}, Files: []string{hostile},
			Steps: []Step{{ID: 1, Operation: hostile, Effect: hostile, Result: hostile, Text: hostile, OnPath: true}}, Graph: true,
		}}, 1, errors.New(hostile)
	}
	add(t, n, journal.Entry{Now: time.Now(), Transitions: []problem.Transition{
		{Problem: &bad}, {Condition: &condition},
		{Mute: &problem.MuteChange{Mute: problem.Mute{Rule: hostile, Where: map[string]string{"pod": hostile}, Reason: hostile}}},
	}})
	return n
}

// add appends entries to the node's journal.
func add(t *testing.T, n *node, entries ...journal.Entry) {
	t.Helper()
	j, err := journal.Open(n.cfg.Journal, journal.Options{Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if _, _, err := j.Add(entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Flush(), j.Close()); err != nil {
		t.Fatal(err)
	}
}

// No text can add an element or an attribute, and nothing in it is invisible.
func TestHostileTexts(t *testing.T) {
	harmless(t, NewNodePage(everything(t).cfg), 40)
	harmless(t, NewFleetPage(everyNode()), 9)
}

// harmless checks a page that contains at least the given number of hostile texts.
func harmless(t *testing.T, p *Page, times int) {
	t.Helper()
	whole := body(t, p, "/")
	if n := strings.Count(whole, "&lt;script&gt;alert(1)"); n < times {
		t.Errorf("the text is shown %d times only", n)
	}
	for i, r := range whole {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q at %d: %q", r, i, whole[max(0, i-40):i])
		}
	}
	if !utf8.ValidString(whole) {
		t.Error("the page is not valid UTF-8")
	}
	doc, err := html.Parse(strings.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(`^(#[a-z]+|page\.css|page\.js|icon\.svg|problems/[A-Za-z0-9]+|diagnoses/[^/?#]+\.svg)$`)
	scripts := 0
	for e := range doc.Descendants() {
		if e.Type != html.ElementNode {
			continue
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.HasPrefix(a.Val, "javascript:") {
				t.Errorf("<%s %s=%q>", e.Data, a.Key, a.Val)
			}
			if (a.Key == "src" || a.Key == "href") && !ours.MatchString(a.Val) {
				t.Errorf("<%s %s=%q> leads elsewhere", e.Data, a.Key, a.Val)
			}
		}
		switch e.Data {
		case "script":
			scripts++
		case "style", "iframe", "object", "form", "base":
			t.Errorf("<%s>", e.Data)
		case "img":
			if src := e.Attr[0]; src.Key != "src" || !strings.HasPrefix(src.Val, "diagnoses/") {
				t.Errorf("<img %s=%q>", src.Key, src.Val)
			}
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts, want the page's own", scripts)
	}
}

func TestHeaders(t *testing.T) {
	n := newNode(t)
	n.cfg.Drawing = func(id string) ([]byte, error) {
		if id != "run-1" {
			return nil, fs.ErrNotExist
		}
		return []byte("<svg/>"), nil
	}
	p := NewNodePage(n.cfg)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/state": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
		"/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
		"/problems/OOMKilling": "text/html; charset=utf-8", "/diagnoses/run-1.svg": "image/svg+xml",
	} {
		w := get(t, p, path)
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			w := httptest.NewRecorder()
			handler(p).ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/diagnoses/other.svg", "/diagnoses/run-1", "/problems/NoSuch", "/problems/..%2fREADME", "/problems/oom.md", "/other"} {
		if w := get(t, p, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := get(t, p, "/state")
	r := httptest.NewRequest(http.MethodGet, "/state", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	handler(p).ServeHTTP(again, r)
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("unchanged: %d with %d bytes", again.Code, again.Body.Len())
	}
}

// Of 10,000 problems the most severe are shown, and the number of those not shown.
func TestManyProblems(t *testing.T) {
	n := newNode(t)
	for i := range 10_000 {
		n.fire(firing(i, problem.Info))
	}
	n.fire(firing(10_000, problem.Warning), firing(10_001, problem.Critical))
	quiet := firing(10_002, problem.Critical)
	quiet.MutedUntil = time.Now().Add(time.Hour)
	over := firing(10_003, problem.Critical)
	over.State = problem.Resolved
	n.fire(quiet, over)
	shown := body(t, NewNodePage(n.cfg), "/state")
	if rows := strings.Count(shown, "<tr data-key="); rows != maxProblems {
		t.Errorf("%d rows, want %d", rows, maxProblems)
	}
	for _, want := range []string{"10002 problems firing: 1 critical, 1 warning, 10000 info; 1 muted", "9503 more are not shown", `class="summary critical"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	first := regexp.MustCompile(`kill \d+`).FindAllString(shown, 2)
	if fmt.Sprint(first) != "[kill 10001 kill 10000]" {
		t.Errorf("first are %v", first)
	}
	if strings.Contains(shown, "kill 10003") || strings.Contains(shown, "kill 10002") {
		t.Error("resolved and muted problems come before firing ones")
	}
	if len(shown) > 500<<10 {
		t.Errorf("%d bytes", len(shown))
	}
}

// Of many conditions, those that are True are shown.
func TestManyConditions(t *testing.T) {
	n := newNode(t)
	list := slices.Repeat([]problem.Condition{{Type: "Well", Status: problem.False}}, maxConditions)
	list = append(list, problem.Condition{Type: "Broken", Status: problem.True})
	n.cfg.Conditions = func() []problem.Condition { return slices.Clone(list) }
	if shown := body(t, NewNodePage(n.cfg), "/state"); !strings.Contains(shown, `data-key="Broken"`) {
		t.Error("the condition that is True is not shown")
	}
}

// BenchmarkRender renders the page of a node with 10,000 firing problems.
func BenchmarkRender(b *testing.B) {
	n := newNode(b)
	for i := range 10_000 {
		n.fire(firing(i, problem.Warning))
	}
	p := NewNodePage(n.cfg)
	b.ReportAllocs()
	for b.Loop() {
		render(p.content())
	}
}

// The timeline shows the newest changes first, and adds new entries of the journal.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := NewNodePage(n.cfg)
		keys := func() []string {
			t.Helper()
			time.Sleep(2 * freshFor)
			var out []string
			for _, m := range regexp.MustCompile(`data-key="(\d+-\d)" data-severity`).FindAllStringSubmatch(body(t, p, "/state"), -1) {
				out = append(out, m[1])
			}
			return out
		}
		if got := keys(); len(got) > 0 {
			t.Errorf("an empty journal: %v", got)
		}
		change := func(i int) journal.Entry {
			f := firing(i, problem.Warning)
			return journal.Entry{Now: f.Since, Event: &event.Event{Kind: event.OOMKill, Time: f.Since}, Transitions: []problem.Transition{{Problem: &f}}}
		}
		quiet := change(0)
		quiet.Transitions = nil
		two := change(1)
		two.Transitions = append(two.Transitions, problem.Transition{Condition: &problem.Condition{Type: "Sick", Status: problem.True}})
		add(t, n, change(0), quiet, two)
		if got := fmt.Sprint(keys()); got != "[3-1 3-0 1-0]" {
			t.Errorf("got %s", got)
		}
		add(t, n, change(2))
		if got := fmt.Sprint(keys()); got != "[4-0 3-1 3-0 1-0]" {
			t.Errorf("later %s", got)
		}
		var many []journal.Entry
		for i := range 700 {
			many = append(many, change(i))
		}
		add(t, n, many...)
		if got := keys(); len(got) != maxRows || got[0] != "704-0" || got[maxRows-1] != "205-0" {
			t.Errorf("%d rows, %v", len(got), got[:min(3, len(got))])
		}
		// More than is read at once hides a change: the older ones do not follow the newer ones.
		large := change(3)
		large.Transitions = nil
		large.Event.Log = &event.LogData{Text: strings.Repeat("x", 1<<20)}
		add(t, n, change(1), large, large, large, large, large, large, large, large, large, change(2))
		if got := fmt.Sprint(keys()); got != "[715-0]" {
			t.Errorf("behind a gap: %.60s", got)
		}
		p.idle.Stop()
	})
}

// Concurrent requests share a rendering; after a minute without requests nothing is kept.
func TestRenderings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		forgotten := 0
		n.cfg.Forget = func() { forgotten++ }
		content := &nodeContent{cfg: n.cfg}
		p := content.page()
		for range 10 {
			p.Changed()
		}
		if n.rendered() != 0 {
			t.Error("rendered although nobody is watching")
		}
		for range 5 { // one second
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { get(t, p, "/state") })
			}
			p.Changed()
			all.Wait()
			time.Sleep(renderEvery)
		}
		if got := n.rendered(); got < 5 || got > 10 {
			t.Errorf("%d renderings for 250 requests in 5 moments", got)
		}
		time.Sleep(idleAfter + time.Second)
		synctest.Wait()
		if p.last != nil || content.rows.rows != nil || forgotten != 1 {
			t.Errorf("kept %v, forgotten %d times", p.last != nil, forgotten)
		}
		get(t, p, "/state")
		time.Sleep(idleAfter + time.Second)
		synctest.Wait()
		if forgotten != 2 {
			t.Errorf("forgotten %d times", forgotten)
		}
		var none *Page
		none.Changed()
	})
}

// A state disk that hangs delays the page once, by a second; the rest of the page is shown.
func TestTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.fire(firing(1, problem.Critical))
		disk := make(chan struct{})
		n.cfg.Diagnoses = func(int) ([]Diagnosis, int, error) { <-disk; return nil, 0, nil }
		p := NewNodePage(n.cfg)
		start := time.Now()
		for range 5 {
			shown := body(t, p, "/state")
			if !strings.Contains(shown, "kill 1") || !strings.Contains(shown, "Diagnoses can&#39;t be read: no answer in time") {
				t.Errorf("shows %s", shown)
			}
			p.Changed()
		}
		if took := time.Since(start); took > readWithin+5*renderEvery {
			t.Errorf("took %s", took)
		}
		close(disk)
		synctest.Wait()
		time.Sleep(2 * freshFor)
		if strings.Contains(body(t, p, "/state"), "be read") {
			t.Error("the disk responds again, but the page does not show it")
		}
		p.idle.Stop()
	})
}

// Problem pages are shown without remains of Markdown.
func TestProblemPages(t *testing.T) {
	p := NewNodePage(newNode(t).cfg)
	pages, err := filepath.Glob("../../docs/problems/*.md")
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, path := range pages {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		shown := body(t, p, "/problems/"+name)
		if !strings.Contains(shown, "<h1>") || !strings.Contains(shown, "<h2>What to do</h2>") || !strings.Contains(shown, "<pre>kubectl ") {
			t.Errorf("%s: %s", name, shown)
		}
		if m := regexp.MustCompile("\\*\\*|`|\\]\\(|\n\\||## ").FindString(shown); m != "" {
			t.Errorf("%s shows %q", name, m)
		}
	}
}

// listener is a client of the event stream.
type listener struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
	ended  chan struct{}
}

func listen(t *testing.T, p *Page) *listener {
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{httptest.NewRecorder(), cancel, make(chan struct{})}
	go func() {
		defer close(l.ended)
		handler(p).ServeHTTP(l, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
	}()
	synctest.Wait()
	return l
}

// messages ends the stream and returns the number of messages.
func (l *listener) messages() int {
	l.cancel()
	<-l.ended
	return strings.Count(l.Body.String(), "event: changed\n")
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		end := make(chan struct{})
		n.cfg.Ended = end
		p := NewNodePage(n.cfg)
		l := listen(t, p)
		time.Sleep(time.Second)
		p.Changed()
		synctest.Wait()
		if got := l.messages(); got != 2 { // at the start, and at once
			t.Errorf("%d messages, want 2: %q", got, l.Body)
		}
		if l.Header().Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(l.Body.String(), "retry: 1000\n") {
			t.Errorf("%v %q", l.Header(), l.Body)
		}
		// Many changes.
		l = listen(t, p)
		for range 3000 {
			p.Changed()
			time.Sleep(time.Millisecond)
		}
		if got := l.messages(); got < 9 || got > 12 {
			t.Errorf("%d messages in three seconds", got)
		}
		// No changes.
		l = listen(t, p)
		time.Sleep(time.Minute + time.Second)
		if got := l.messages(); got != 7 {
			t.Errorf("%d messages in a minute of silence", got)
		}
		// The stream ends by itself, so that access is checked again.
		l = listen(t, p)
		start := time.Now()
		<-l.ended
		if took := time.Since(start); took < streamFor-time.Second || took > streamFor+time.Second {
			t.Errorf("ended after %s", took)
		}
		l.cancel()
		// The agent stops.
		l = listen(t, p)
		close(end)
		<-l.ended
		l.cancel()
		if got := streams(p); got != 0 {
			t.Errorf("%d streams are left", got)
		}
	})
}

func streams(p *Page) int {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return len(p.hub.streams)
}

func TestStreamLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewNodePage(newNode(t).cfg)
		var all []*listener
		for range maxStreams {
			all = append(all, listen(t, p))
		}
		w := get(t, p, "/events")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one more: %d %v", w.Code, w.Header())
		}
		all[0].messages()
		l := listen(t, p)
		if got := l.messages(); l.Code != http.StatusOK || got != 1 {
			t.Errorf("after one has left: %d, %d messages", l.Code, got)
		}
		for _, l := range all[1:] {
			l.messages()
		}
		r := httptest.NewRequest(http.MethodHead, "/events", nil)
		w = httptest.NewRecorder()
		handler(p).ServeHTTP(w, r)
		if w.Code != http.StatusOK || streams(p) != 0 {
			t.Errorf("HEAD: %d, %d streams", w.Code, streams(p))
		}
	})
}
