package web

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for closing a connection.
const (
	ClosedRate = "rate" // its address connects too often
	ClosedFull = "full" // there are too many connections
)

// Counts holds the metrics of all servers of a process.
type Counts struct {
	connections, requests *prometheus.CounterVec
}

// NewCounts returns an agent's metrics. The caller must register them.
func NewCounts() *Counts {
	return newCounts("kernosis_http_connections_closed_total", "kernosis_http_requests_refused_total")
}

// NewControllerCounts returns a controller's metrics. The caller must register them.
func NewControllerCounts() *Counts {
	return newCounts("kernosis_controller_http_connections_closed_total", "kernosis_controller_http_requests_refused_total")
}

func newCounts(connections, requests string) *Counts {
	c := &Counts{
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: connections, Help: "Connections to /metrics, /healthz and the like that were closed. rate: the client's address connects too often; full: too many connections, and the client's address has the most.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: requests, Help: "Requests for metrics and conditions that were refused, by response code.",
		}, []string{"code"}),
	}
	c.connections.WithLabelValues(ClosedRate)
	c.connections.WithLabelValues(ClosedFull)
	c.requests.WithLabelValues(strconv.Itoa(http.StatusUnauthorized))
	return c
}

func (c *Counts) closed(reason string) { c.connections.WithLabelValues(reason).Inc() }

func (c *Counts) refused(code int) { c.requests.WithLabelValues(strconv.Itoa(code)).Inc() }

// Describe implements [prometheus.Collector].
func (c *Counts) Describe(out chan<- *prometheus.Desc) {
	c.connections.Describe(out)
	c.requests.Describe(out)
}

// Collect implements [prometheus.Collector].
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	c.connections.Collect(out)
	c.requests.Collect(out)
}
