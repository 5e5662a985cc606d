package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/detector/problem"
)

// maxInfos bounds the series of kernosis_problem_info of one agent.
const maxInfos = 100

// FiringProblem is a problem that fires now.
type FiringProblem struct {
	Rule, Reason string
	Severity     problem.Severity
	Subject      string // the pod, device or task that it affects, fit to be shown
	Since        time.Time
}

// Firing sets what fires now; rules not named have no firing problem.
func (m *Metrics) Firing(all []FiringProblem) {
	byRule := map[labels]float64{}
	for i := range all {
		byRule[labels{all[i].Rule}]++
	}
	m.replace(m.firing, 1, byRule)
	all = slices.SortedFunc(slices.Values(all), func(a, b FiringProblem) int {
		return cmp.Or(cmp.Compare(b.Severity.Rank(), a.Severity.Rank()), a.Since.Compare(b.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
	})
	infos := map[labels]float64{}
	for _, p := range all[:min(len(all), maxInfos)] {
		infos[labels{p.Rule, p.Reason, string(p.Severity), p.Subject}] = 1
	}
	m.replace(m.info, 4, infos)
}

// labels are the values of a series' labels; those that a gauge does not have are empty.
type labels [4]string

// replace sets the series of a gauge with n labels, and deletes those of before that are not among
// them. With Reset all vanish for a moment, and a scrape then would resolve alerts.
func (m *Metrics) replace(gauge *prometheus.GaugeVec, n int, series map[labels]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(gauge, n, series)
	for l := range m.series[gauge] {
		if _, ok := series[l]; !ok {
			gauge.DeleteLabelValues(l[:n]...)
			delete(m.series[gauge], l)
		}
	}
}

// set sets series of a gauge besides those that it has. The lock is held.
func (m *Metrics) set(gauge *prometheus.GaugeVec, n int, series map[labels]float64) {
	if m.series[gauge] == nil {
		m.series[gauge] = make(map[labels]struct{})
	}
	for l, v := range series {
		gauge.WithLabelValues(l[:n]...).Set(v)
		m.series[gauge][l] = struct{}{}
	}
}
