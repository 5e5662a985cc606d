package start

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/web"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestBodies(t *testing.T) {
	s := newStand(t, nil)
	c := s.known()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	huge := strings.Repeat(" ", trigger.MaxAlertBody) + "[]"
	for name, b := range map[string]struct {
		path    string
		body    io.Reader
		headers []string
		code    int
		says    string
		taken   int
	}{
		"webhook":           {path: PathWebhook, body: strings.NewReader(webhookJSON(3)), code: 200, taken: 3},
		"4096":              {path: PathWebhook, body: strings.NewReader(webhookJSON(4096)), code: 200, taken: 4096},
		"4097":              {path: PathWebhook, body: strings.NewReader(webhookJSON(4097)), code: 400, says: "more than 4096"},
		"list v1":           {path: PathV1, body: strings.NewReader(alertsJSON(2)), code: 200, taken: 2},
		"list v2":           {path: PathV2, body: strings.NewReader(alertsJSON(2)), code: 200, taken: 2},
		"none":              {path: PathV2, body: strings.NewReader("[]"), code: 200},
		"list to webhook":   {path: PathWebhook, body: strings.NewReader(alertsJSON(2)), code: 400, says: "webhook: want an object"},
		"webhook to list":   {path: PathV2, body: strings.NewReader(webhookJSON(2)), code: 400, says: "alerts: want a list"},
		"empty":             {path: PathV2, body: strings.NewReader(""), code: 400, says: "want a list"},
		"garbage":           {path: PathV2, body: strings.NewReader("\x00\xff{]"), code: 400},
		"cut":               {path: PathV2, body: strings.NewReader(alertsJSON(2)[:120]), code: 400, says: "alerts[1]"},
		"another version":   {path: PathWebhook, body: strings.NewReader(`{"version":"3","alerts":[]}`), code: 400, says: `version "3", want 4`},
		"one is wrong":      {path: PathV2, body: strings.NewReader(`[{"labels":{"alertname":"A"}},{"labels":{}},{"labels":{"alertname":"B"}}]`), code: 200, taken: 2},
		"all are wrong":     {path: PathV2, body: strings.NewReader(`[{"labels":{}}]`), code: 400, says: "no alert could be accepted"},
		"length too large":  {path: PathV2, body: strings.NewReader(huge), code: 413, says: "more than 4194304 bytes"},
		"chunks too large":  {path: PathV2, body: io.MultiReader(strings.NewReader(huge)), code: 413, says: "more than 4194304 bytes"},
		"gzip":              {path: PathV2, body: &bomb, headers: []string{"Content-Encoding", "gzip"}, code: 415, says: "content-encoding"},
		"text":              {path: PathV2, body: strings.NewReader(alertsJSON(1)), headers: []string{"Content-Type", "text/plain"}, code: 415, says: "content-type"},
		"no type":           {path: PathV2, body: strings.NewReader(alertsJSON(1)), headers: []string{"Content-Type", ""}, code: 415},
		"type with charset": {path: PathV2, body: strings.NewReader(alertsJSON(1)), headers: []string{"Content-Type", "application/json; charset=utf-8"}, code: 200, taken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.taker.count()
			r, err := s.send(c, b.path, b.body, b.headers...)
			if err != nil {
				t.Fatal(err)
			}
			if r.code != b.code || !strings.Contains(r.Error, b.says) || s.taker.count()-before != b.taken {
				t.Errorf("%d %q with %d taken, want %d %q with %d", r.code, r.Error, s.taker.count()-before, b.code, b.says, b.taken)
			}
			if name == "one is wrong" && (r.Received != 2 || len(r.Refused) != 1 || !strings.HasPrefix(r.Refused[0], "alerts[1]: labels: ")) {
				t.Errorf("%+v", r.body)
			}
		})
	}
	if got := s.metric("kernosis_alerts_refused_total", "reason", "invalid"); got != 2 {
		t.Errorf("%v are counted as refused", got)
	}
	if got, want := s.metric("kernosis_alerts_received_total"), float64(s.taker.count()); got != want {
		t.Errorf("%v are counted as received, of %v", got, want)
	}
	if r, err := c.Get(s.url(PathV2)); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Error(r, err)
	} else {
		_ = r.Body.Close()
	}
	if wrong, err := testutil.GatherAndLint(s.registry); err != nil || len(wrong) > 0 {
		t.Error(wrong, err)
	}
}

// trickle returns a byte occasionally, until end is closed.
type trickle struct {
	end  <-chan struct{}
	tick *time.Ticker
}

func (t *trickle) Read(b []byte) (int, error) {
	select {
	case <-t.end:
		return 0, io.EOF
	case <-t.tick.C:
		b[0] = ' '
		return 1, nil
	}
}

func TestASlowBodyEnds(t *testing.T) {
	s := newStand(t, func(s *server) { s.body = 2 * time.Second })
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	r, err := s.send(s.known(), PathV2, &trickle{t.Context().Done(), tick})
	if err == nil && r.code != http.StatusBadRequest {
		t.Errorf("%+v", r)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it was held for %s", took)
	}
	// Its slot is free again.
	if r := s.post(s.known(), PathV2, alertsJSON(1)); r.code != 200 {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotBeTakenNow(t *testing.T) {
	s := newStand(t, nil)
	c := s.known()
	s.taker.ready = &notNow{why: "does not lead", after: 1500 * time.Millisecond}
	if r := s.post(c, PathV2, alertsJSON(1)); r.code != 503 || r.header.Get("Retry-After") != "2" || !r.close || r.Error != "does not lead" {
		t.Errorf("%+v", r)
	}
	ready := func() int {
		r, err := c.Get(s.url(PathReady))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	if code := ready(); code != 503 {
		t.Error(code)
	}
	s.taker.mu.Lock()
	s.taker.ready, s.taker.err = nil, errors.New("as asked")
	s.taker.mu.Unlock()
	if code := ready(); code != 200 {
		t.Error(code)
	}
	if r := s.post(c, PathV2, alertsJSON(1)); r.code != 503 || r.header.Get("Retry-After") == "" || r.Error != "as asked" {
		t.Errorf("%+v", r)
	}
	if got := s.metric("kernosis_alerts_received_total"); got != 0 {
		t.Errorf("%v are counted as received", got)
	}
}

func TestRequestsAtOnce(t *testing.T) {
	s := newStand(t, nil)
	s.taker.hold = make(chan struct{})
	c := s.known()
	var all sync.WaitGroup
	for range maxRequests {
		all.Go(func() {
			if r, err := s.send(c, PathV2, strings.NewReader(alertsJSON(1))); err != nil || r.code != 200 {
				t.Errorf("%d %v", r.code, err)
			}
		})
	}
	testenv.Until(t, "all places are taken", deadline, func() bool { return s.taker.inside.Load() == maxRequests })
	if r := s.post(c, PathV2, alertsJSON(1)); r.code != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("%+v", r)
	}
	close(s.taker.hold)
	all.Wait()
	if n := s.taker.count(); n != maxRequests {
		t.Errorf("%d alerts", n)
	}
}

// A sender that sends too much is throttled, on all its connections, and others are not.
func TestOneSenderAmongSeveral(t *testing.T) {
	const burst = 5
	s := newStand(t, func(s *server) {
		s.cfg.ClientNames = append(s.cfg.ClientNames, "another")
		s.senders = web.NewLimiters(maxSenders, 0.001, burst)
	})
	own, certificate := s.known(), s.clients.client("another")
	for i := range burst + 2 {
		if i == burst {
			own = s.known()
		}
		want := http.StatusOK
		if i >= burst {
			want = http.StatusTooManyRequests
		}
		if r := s.post(own, PathV2, "[]"); r.code != want {
			t.Errorf("request %d: %d, want %d", i+1, r.code, want)
		}
	}
	if r := s.post(s.client(certificate), PathV2, alertsJSON(1)); r.code != http.StatusOK {
		t.Errorf("another gets %d", r.code)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := newStand(t, nil)
	c := s.known()
	transport, _ := c.Transport.(*http.Transport)
	transport.TLSClientConfig.MaxVersion = tls.VersionTLS11
	if r, err := s.send(c, PathV2, strings.NewReader("[]")); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("%+v, %v", r, err)
	}
}
