package alerts

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/reporter/web"
)

// counts are the server's metrics.
type counts struct {
	*prometheus.Registry                              // of these metrics alone; registered with the process' own
	requests                   *prometheus.CounterVec // by code
	auth                       *prometheus.CounterVec // by method and outcome
	connections                *prometheus.CounterVec // closed, by reason
	invalid, omitted, received prometheus.Counter
}

// newCounts returns the counters, and metrics of the server's certificate; nil: it has none.
func newCounts(k *web.Keys) *counts {
	c := &counts{Registry: prometheus.NewRegistry()}
	factory := promauto.With(c)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	c.requests = counters("kernosis_alert_requests_total", "Requests from senders of alerts, by response code.", "code")
	c.auth = counters("kernosis_alert_authentications_total", "Requests, by authentication method and outcome.", "method", "outcome")
	for _, m := range []string{byToken, byCertificate} {
		c.auth.WithLabelValues(m, web.OutcomeAllowed)
		c.auth.WithLabelValues(m, web.OutcomeForbidden)
	}
	c.connections = counters("kernosis_alert_connections_closed_total", "Connections from senders of alerts that were closed. rate: their address connects too often, full: there were too many, and their address had the most.", "reason")
	c.connections.WithLabelValues(web.ClosedRate)
	c.connections.WithLabelValues(web.ClosedFull)
	c.received = factory.NewCounter(prometheus.CounterOpts{Name: "kernosis_alerts_received_total", Help: "Alerts that were accepted."})
	refused := counters("kernosis_alerts_refused_total", "Alerts that were left out. invalid: they can't be read, omitted: the sender left them out because of its own limit.", "reason")
	c.invalid, c.omitted = refused.WithLabelValues("invalid"), refused.WithLabelValues("omitted")
	if k == nil {
		return c
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kernosis_alert_certificate_expiry_timestamp_seconds", Help: "When the server's certificate expires.",
	}, func() float64 {
		expires, _ := k.State()
		return float64(expires.Unix())
	})
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "kernosis_alert_certificate_failed_reloads_total", Help: "Failed reloads of changed certificate files.",
	}, func() float64 {
		_, failed := k.State()
		return float64(failed)
	})
	return c
}

func (c *counts) answered(code int) { c.requests.WithLabelValues(strconv.Itoa(code)).Inc() }

func (c *counts) closed(reason string) { c.connections.WithLabelValues(reason).Inc() }

func (c *counts) authenticated(method, outcome string) {
	c.auth.WithLabelValues(method, outcome).Inc()
}
