package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/detector/problem"
)

// maxInfos bounds the series of kernosis_problem_info per agent.
const maxInfos = 100

// Firing sets the firing problems, whose subjects must be safe to display; rules without one are set
// to none.
func (m *Metrics) Firing(all []problem.Problem) {
	byRule := map[labels]float64{}
	for i := range all {
		byRule[labels{all[i].Rule}]++
	}
	m.replace(m.firing, 1, byRule)
	all = slices.SortedFunc(slices.Values(all), func(a, b problem.Problem) int {
		return cmp.Or(cmp.Compare(b.Severity.Rank(), a.Severity.Rank()), a.Since.Compare(b.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
	})
	infos := map[labels]float64{}
	for _, p := range all[:min(len(all), maxInfos)] {
		infos[labels{p.Rule, p.Reason, string(p.Severity), p.Subject}] = 1
	}
	m.replace(m.info, 4, infos)
}

// labels holds the label values of a series; unused ones are empty.
type labels [4]string

// replace sets the series of a gauge with n labels and deletes all others. It does not use
// Reset, because a scrape just after it would find no series and resolve alerts.
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

// set sets series of a gauge and keeps the others. The caller must hold mu.
func (m *Metrics) set(gauge *prometheus.GaugeVec, n int, series map[labels]float64) {
	if m.series[gauge] == nil {
		m.series[gauge] = make(map[labels]struct{})
	}
	for l, v := range series {
		gauge.WithLabelValues(l[:n]...).Set(v)
		m.series[gauge][l] = struct{}{}
	}
}
