package alerts

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/reporter/web"
)

// counts are the server's metrics.
type counts struct {
	requests                   *prometheus.CounterVec // by code
	auth                       *prometheus.CounterVec // by method and outcome
	refused                    *prometheus.CounterVec // alerts, by reason
	connections                *prometheus.CounterVec // closed, by reason
	invalid, omitted, received prometheus.Counter
	keys                       *web.Keys

	expires, reloads *prometheus.Desc
}

func newCounts(k *web.Keys) *counts {
	c := &counts{
		keys: k,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_alert_requests_total", Help: "Requests of senders of alerts, by the code of the answer.",
		}, []string{"code"}),
		auth: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_alert_authentications_total", Help: "Requests, by how the sender shows who it is and what becomes of it.",
		}, []string{"method", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_alerts_refused_total", Help: "Alerts that were left out. invalid: they can not be read, omitted: by the sender, by its own bound.",
		}, []string{"reason"}),
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_alert_connections_closed_total", Help: "Connections of senders of alerts that were closed. rate: their address connects too often, full: there were too many, and theirs has most.",
		}, []string{"reason"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kernosis_alerts_received_total", Help: "Alerts that were taken.",
		}),
		expires: prometheus.NewDesc("kernosis_alert_certificate_expiry_timestamp_seconds", "When the server's certificate ends.", nil, nil),
		reloads: prometheus.NewDesc("kernosis_alert_certificate_failed_reloads_total", "Times that changed certificate files could not be used.", nil, nil),
	}
	c.invalid, c.omitted = c.refused.WithLabelValues("invalid"), c.refused.WithLabelValues("omitted")
	c.connections.WithLabelValues(web.ClosedRate)
	c.connections.WithLabelValues(web.ClosedFull)
	for _, m := range []string{byToken, byCertificate} {
		c.auth.WithLabelValues(m, web.OutcomeAllowed)
		c.auth.WithLabelValues(m, web.OutcomeForbidden)
	}
	return c
}

func (c *counts) answered(code int) { c.requests.WithLabelValues(strconv.Itoa(code)).Inc() }

func (c *counts) closed(reason string) { c.connections.WithLabelValues(reason).Inc() }

func (c *counts) authenticated(method, outcome string) {
	c.auth.WithLabelValues(method, outcome).Inc()
}

// Describe implements [prometheus.Collector].
func (c *counts) Describe(out chan<- *prometheus.Desc) {
	for _, v := range []prometheus.Collector{c.requests, c.auth, c.refused, c.connections, c.received} {
		v.Describe(out)
	}
	out <- c.expires
	out <- c.reloads
}

// Collect implements [prometheus.Collector].
func (c *counts) Collect(out chan<- prometheus.Metric) {
	for _, v := range []prometheus.Collector{c.requests, c.auth, c.refused, c.connections, c.received} {
		v.Collect(out)
	}
	if c.keys == nil {
		return
	}
	expires, failed := c.keys.State()
	out <- prometheus.MustNewConstMetric(c.expires, prometheus.GaugeValue, float64(expires.Unix()))
	out <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(failed))
}
