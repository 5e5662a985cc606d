package start

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/web"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestWhoMaySend(t *testing.T) {
	s := newStand(t, nil)
	with, without := sender(t, true), sender(t, false)
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	anybody := s.client(nil)
	for name, c := range map[string]struct {
		client  *http.Client
		headers []string
		code    int
		says    string
	}{
		"role and audience":         {code: 200, headers: bearer(token(t, with, "kernosis"))},
		"another audience":          {code: 401, headers: bearer(token(t, with, "prometheus")), says: "audience kernosis"},
		"the API server's audience": {code: 401, headers: bearer(token(t, with, "")), says: "audience kernosis"},
		"no role":                   {code: 403, headers: bearer(token(t, without, "kernosis")), says: "user system:serviceaccount:" + without.Namespace + ":sender may not post " + PathV2},
		"garbage":                   {code: 401, headers: bearer("garbage")},
		"nothing":                   {code: 401, says: "no bearer token"},
		"a password":                {code: 401, headers: []string{"Authorization", "Basic YTpi"}, says: "no bearer token"},
		"much too long":             {code: 401, headers: bearer(strings.Repeat("x", web.MaxToken+1))},
		"certificate":               {code: 200, client: s.known()},
		"certificate of another":    {code: 403, client: s.client(s.clients.client("grafana")), says: "certificate of grafana"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.client == nil {
				c.client = anybody
			}
			before := s.taker.count()
			got := s.post(c.client, PathV2, alertsJSON(1), c.headers...)
			if got.code != c.code || !strings.Contains(got.Error, c.says) {
				t.Errorf("%d %q, want %d %q", got.code, got.Error, c.code, c.says)
			}
			if taken := s.taker.count() - before; taken != map[bool]int{true: 1}[c.code == 200] {
				t.Errorf("%d alerts are taken", taken)
			}
			if got.close != (c.code != 200) {
				t.Error("only those who are known keep their connections")
			}
			if c.code == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Error("401 without a way to authenticate")
			}
		})
	}
	stranger := s.client(newAuthority(t, "strangers").client("alertmanager"))
	if r, err := s.send(stranger, PathV2, strings.NewReader(alertsJSON(1))); err == nil {
		t.Errorf("a certificate of another authority: %d", r.code)
	}
	for outcome, want := range map[string]float64{web.OutcomeAllowed: 1, web.OutcomeForbidden: 1, web.OutcomeUnknown: 3} {
		if got := s.metric("kernosis_alert_authentications_total", "method", "token", "outcome", outcome); got != want {
			t.Errorf("%v tokens are %s, want %v", got, outcome, want)
		}
	}
	testenv.Until(t, "report of the failed connection", deadline, func() bool { return strings.Contains(s.log.String(), "a connection has failed") })
	if log := s.log.String(); strings.Count(log, "sender rejected") != 1 || strings.Contains(log, "garbage") {
		t.Errorf("it is reported once, and never the token:\n%s", log)
	}
}

func TestVerdictsAreRemembered(t *testing.T) {
	s := newStand(t, nil)
	c, header := s.client(nil), "Bearer "+token(t, sender(t, true), "kernosis")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if r, err := s.send(c, PathWebhook, strings.NewReader(webhookJSON(1)), "Authorization", header); err != nil || r.code != 200 {
					t.Errorf("%d %v", r.code, err)
				}
			}
		})
	}
	all.Wait()
	if tokens, access := s.asked.tokens.Load(), s.asked.access.Load(); tokens != 1 || access != 1 {
		t.Errorf("%d token reviews, %d access reviews for 40 requests", tokens, access)
	}
	// A review is for one path.
	s.post(c, PathV1, alertsJSON(1), "Authorization", header)
	if access := s.asked.access.Load(); access != 2 {
		t.Errorf("%d access reviews for two paths", access)
	}
	if n := s.taker.count(); n != 41 {
		t.Errorf("%d alerts", n)
	}
}

// Trying unknown tokens costs the API server little, and known ones nothing.
func TestAFloodOfUnknownTokens(t *testing.T) {
	s := newStand(t, nil)
	c, known := s.client(nil), "Bearer "+token(t, sender(t, true), "kernosis")
	s.post(c, PathV2, alertsJSON(1), "Authorization", known)
	began, reviewed := time.Now(), s.asked.tokens.Load()
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 20 {
		all.Go(func() {
			for j := range 10 {
				r, err := s.send(c, PathV2, strings.NewReader(alertsJSON(1)), "Authorization", fmt.Sprintf("Bearer guess-%d-%d", i, j))
				if err != nil {
					t.Error(err)
				}
				if r.code == http.StatusTooManyRequests && r.header.Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
				mu.Lock()
				codes[r.code]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if codes[429] == 0 || codes[429]+codes[401] != 200 {
		t.Errorf("%v", codes)
	}
	asks := web.TokensConfig{Rate: reviewRate}
	each, burst := asks.AddressRate()
	most := int32(burst) + int32(each)*int32(time.Since(began)/time.Second+1)
	if n := s.asked.tokens.Load() - reviewed; n > most || int(n) != codes[401] {
		t.Errorf("the API server is asked %d times, %d are unknown, at most %d", n, codes[401], most)
	}
	if r := s.post(c, PathV2, alertsJSON(1), "Authorization", known); r.code != 200 {
		t.Errorf("the known sender gets %d", r.code)
	}
}

func TestTheAPIServerCannotBeAsked(t *testing.T) {
	s := newStand(t, nil)
	c, header := s.client(nil), "Bearer "+token(t, sender(t, true), "kernosis")
	s.asked.fail.Store(true)
	if r := s.post(c, PathV2, alertsJSON(1), "Authorization", header); r.code != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("%+v", r)
	}
	s.asked.fail.Store(false) // and the failure is not cached
	if r := s.post(c, PathV2, alertsJSON(1), "Authorization", header); r.code != 200 {
		t.Errorf("%+v", r)
	}
}

// Connections that are held without sending anything keep no sender out.
func TestIdleConnections(t *testing.T) {
	s := newStand(t, nil)
	known := s.known()
	if r := s.post(known, PathWebhook, webhookJSON(1)); r.code != http.StatusOK {
		t.Fatalf("%d %+v", r.code, r.body)
	}
	idle := func(from string, n int) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range n {
			c, err := d.DialContext(t.Context(), "tcp", s.Address())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	for i := 2; i < 8; i++ {
		idle(fmt.Sprintf("127.0.0.%d", i), 100)
	}
	began := time.Now()
	if r := s.post(known, PathWebhook, webhookJSON(1)); r.code != http.StatusOK {
		t.Errorf("a sender that is connected: %d %+v", r.code, r.body)
	}
	if r := s.post(s.known(), PathWebhook, webhookJSON(1)); r.code != http.StatusOK {
		t.Errorf("a sender that comes new: %d %+v", r.code, r.body)
	}
	if took := time.Since(began); took > testenv.Within(2*time.Second) {
		t.Errorf("two answers took %s", took)
	}
	if n := kubetest.Sum(t, s.registry, "kernosis_alert_connections_closed_total"); n < 400 {
		t.Errorf("%v connections are counted as closed", n)
	}
}
