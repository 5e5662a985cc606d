package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// browser is a headless Chromium with one tab, controlled through a pipe.
type browser struct {
	t       *testing.T
	to      io.Writer
	pipe    *os.File
	from    *bufio.Reader
	id      int
	session string
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	testenv.OnlyInTestAll(t)
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium (package chromium), which shows the page")
	}
	// Not t.TempDir, because processes left by the browser may still write there.
	profile, err := os.MkdirTemp("", "kernosis-browser-") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(profile) })
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(3*time.Minute))
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // file descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &browser{t: t, to: to, pipe: from, from: bufio.NewReaderSize(from, 1<<20)}
	t.Cleanup(func() {
		if _, err := io.WriteString(to, `{"id":0,"method":"Browser.close"}`+"\x00"); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		cancel()
		to.Close()
		from.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	b.call("Log.enable", nil, nil)
	b.call("Runtime.enable", nil, nil)
	return b
}

// call calls a method of the DevTools protocol. Errors that the browser reports meanwhile, such as
// violations of a policy, fail the test.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.id++
	message := map[string]any{"id": b.id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	raw, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(raw, 0)); err != nil {
		b.t.Fatal(err)
	}
	if err := b.pipe.SetReadDeadline(time.Now().Add(testenv.Within(30 * time.Second))); err != nil {
		b.t.Fatal(err)
	}
	for {
		raw, err := b.from.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID            int
			Method        string
			Params        json.RawMessage
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(raw[:len(raw)-1], &answer); err != nil {
			b.t.Fatal(err)
		}
		switch {
		case answer.Method == "Runtime.exceptionThrown", answer.Method == "Log.entryAdded" && !strings.Contains(string(answer.Params), "ERR_"):
			b.t.Errorf("%s: %s", answer.Method, answer.Params) // except that an agent does not respond
		case answer.ID != b.id:
		case answer.Error != nil:
			b.t.Fatalf("%s: %s", method, answer.Error)
		default:
			if result != nil {
				if err := json.Unmarshal(answer.Result, result); err != nil {
					b.t.Fatal(err)
				}
			}
			return
		}
	}
}

// eval returns the value of an expression as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	return fmt.Sprint(out.Result.Value)
}

func (b *browser) until(expression, want string) {
	b.t.Helper()
	testenv.UntilShown(b.t, expression+" is "+want, 15*time.Second, func() (bool, string) {
		got := b.eval(expression)
		return got == want, got
	})
}

// show opens a page in a window of the given width.
func (b *browser) show(url string, width int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`document.readyState + " " + (document.getElementById("live")?.textContent || "live")`, "complete live")
}

// serveAt serves the page of a node at an address until stop is called.
func serveAt(t *testing.T, address string, cfg NodePageConfig) (p *Page, at string, stop func()) {
	t.Helper()
	return servePage(t, address, func(ended <-chan struct{}) *Page {
		cfg.Ended = ended
		return NewNodePage(cfg)
	})
}

// servePage serves a page at an address until stop is called.
func servePage(t *testing.T, address string, of func(ended <-chan struct{}) *Page) (p *Page, at string, stop func()) {
	t.Helper()
	var l net.Listener
	// The previous server may release the address a moment later.
	testenv.Until(t, "the address is free", 10*time.Second, func() (ok bool) {
		var err error
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err == nil
	})
	ended := make(chan struct{})
	p = of(ended)
	s := &http.Server{Handler: handler(p), ReadTimeout: time.Second, WriteTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		close(ended)
		_ = s.Close()
		<-done
		if p.idle != nil {
			p.idle.Stop()
		}
	}
	t.Cleanup(stop)
	return p, l.Addr().String(), stop
}

const problemRows = `document.querySelectorAll("#problem-rows > tr").length`

// A problem appears on the page within a second, and the page continues with the next agent at the
// same address. What its user has changed in the page stays.
func TestLive(t *testing.T) {
	b := openBrowser(t)
	n := newNode(t)
	n.cfg.Drawing = func(string) ([]byte, error) {
		return []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="50"/>`), nil
	}
	n.cfg.Diagnoses = func(int) ([]Diagnosis, int, error) {
		return []Diagnosis{{ID: "d-1", Name: "d-1", Phase: "Succeeded", Graph: true}}, 1, nil
	}
	p, at, stop := serveAt(t, "127.0.0.1:0", n.cfg)
	b.show("http://"+at+"/", 1200)
	b.until(problemRows, "0")
	b.eval(`filter.value = "nothing has this"; filter.focus(); document.querySelector("details").open = true; window.same = document.querySelector("details")`)

	// The browser records the time when the row appears, because polling takes time.
	b.eval(`window.came = new Promise(ok => new MutationObserver((_, o) => { if (` + problemRows + ` > 0) { o.disconnect(); ok(Date.now()); } }).observe(document.getElementById("problem-rows"), {childList: true})); 0`)
	began := time.Now()
	n.fire(firing(1, problem.Critical))
	f := firing(1, problem.Critical)
	add(t, n, journal.Entry{Now: time.Now(), Transitions: []problem.Transition{{Problem: &f}}})
	p.Changed()
	var came int64
	fmt.Sscan(b.eval(`came.then(String)`), &came)
	took := time.UnixMilli(came).Sub(began)
	t.Logf("a problem is shown after %s", took)
	if took > testenv.Within(time.Second) {
		t.Errorf("a problem is shown after %s", took)
	}
	b.until(`document.getElementById("summary").textContent`, "1 problem firing: 1 critical")
	b.until(`document.querySelectorAll("#timeline-rows > tr[hidden]").length`, "1")
	if got := b.eval(`document.activeElement.id + " " + filter.value + " " + (document.querySelector("details") === same ? "same" : "another") + " " + same.open`); got != "filter nothing has this same true" {
		t.Errorf("after an update: %s", got)
	}
	b.until(`document.querySelector(".graph img").naturalWidth`, "2000")

	// The server's deadlines, a second here, do not end the stream.
	b.until(`performance.now() > 2000`, "true")
	n.fire(firing(2, problem.Warning))
	p.Changed()
	b.until(problemRows, "2")
	if got := b.eval("live.textContent"); got != "live" {
		t.Errorf("the stream is %q", got)
	}

	stop()
	b.until("live.textContent", "reconnecting")
	n.fire(firing(3, problem.Warning))
	next, _, _ := serveAt(t, at, n.cfg)
	b.until(problemRows, "3")
	b.until("live.textContent", "live")
	n.fire(firing(4, problem.Warning))
	next.Changed()
	b.until(problemRows, "4")
	if got := b.eval(`filter.value + " " + document.querySelector("details").open`); got != "nothing has this true" {
		t.Errorf("after a restart: %s", got)
	}
	// A hidden tab has no stream.
	b.eval(`Object.defineProperty(document, "hidden", {value: true}); document.dispatchEvent(new Event("visibilitychange"))`)
	testenv.Until(t, "the stream ends", 10*time.Second, func() bool { next.Changed(); return streams(next) == 0 })
}

// tooWide returns the elements that make the page scroll horizontally.
const tooWide = `(() => {
	const page = document.documentElement;
	if (page.scrollWidth <= page.clientWidth) return "";
	const fits = e => {
		const before = e.style.display;
		e.style.display = "none";
		const is = page.scrollWidth <= page.clientWidth;
		e.style.display = before;
		return is;
	};
	let e = document.body, path = "";
	while (e) {
		path = e.outerHTML.slice(0, 300);
		e = [...e.children].find(fits);
	}
	return page.scrollWidth + " of " + page.clientWidth + ": " + path;
})()`

// On a phone nothing is wider than the screen, and hostile texts are shown as text.
func TestNarrowAndHostile(t *testing.T) {
	b := openBrowser(t)
	n := everything(t)
	for i := range 30 {
		n.fire(firing(i, problem.Warning))
	}
	n.cfg.Drawing = func(string) ([]byte, error) {
		return []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="50"/>`), nil
	}
	_, at, _ := serveAt(t, "127.0.0.1:0", n.cfg)
	for _, width := range []int{360, 768, 1200} {
		b.show("http://"+at+"/", width)
		b.eval(`document.querySelectorAll("details").forEach(d => d.open = true)`)
		if wide := b.eval(tooWide); wide != "" {
			t.Errorf("at %d pixels too wide: %s", width, wide)
		}
		if got := b.eval(`document.querySelector("#state h1").textContent`); !strings.HasPrefix(got, "<script>alert(1)</script>") {
			t.Errorf("the heading is %q", got)
		}
		if got := b.eval(`document.scripts.length + " " + document.querySelectorAll("img:not(.graph img)").length`); got != "1 0" {
			t.Errorf("scripts and images: %s", got)
		}
	}
	b.show("http://"+at+"/problems/ClockProblem", 360)
	if wide := b.eval(tooWide); wide != "" {
		t.Errorf("a problem page is too wide: %s", wide)
	}
}
