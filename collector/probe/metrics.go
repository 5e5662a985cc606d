package probe

import "github.com/prometheus/client_golang/prometheus"

// maxShown bounds the workers that have their own series: three probes for each pod.
const maxShown = 1000

// figures are the Manager's counters; mu guards them.
type figures struct {
	shown       int       // workers with series
	overflowed  [3]uint64 // results of workers without series
	ignored     uint64    // observed outcomes that no worker took
	refusedPods uint64
}

// bump counts a result; mu is held.
func (m *Manager) bump(w *worker, r Result) {
	if w.shown {
		w.counts[r]++
		return
	}
	m.figures.overflowed[r]++
}

// Exporter exports metrics for Describe or Collect, so that each metric is defined once, beside its
// values. One of the channels is nil.
type Exporter struct {
	Descs   chan<- *prometheus.Desc
	Metrics chan<- prometheus.Metric
}

// Metric describes a metric. It returns a function that sends one series, with its labels' values.
func (e Exporter) Metric(kind prometheus.ValueType, name, help string, labels ...string) func(n float64, values ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	if e.Descs != nil {
		e.Descs <- desc
		return func(float64, ...string) {}
	}
	return func(n float64, values ...string) {
		e.Metrics <- prometheus.MustNewConstMetric(desc, kind, n, values...)
	}
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) { m.export(Exporter{Descs: ch}) }

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) { m.export(Exporter{Metrics: ch}) }

// series identifies a series of results. Two pods of the same name, the second created while the
// first one ends, share theirs.
type series struct {
	namespace, pod, container string
	kind                      Kind
	feed                      string
}

func (m *Manager) export(to Exporter) {
	type group struct {
		kind Kind
		feed string
	}
	results, workers := map[series][3]uint64{}, map[group]int{}
	m.mu.Lock()
	for _, w := range m.workers {
		workers[group{w.key.Kind, w.feed}]++
		if !w.shown {
			continue
		}
		k := series{w.entry.pod.Namespace, w.entry.pod.Name, w.key.Container, w.key.Kind, w.feed}
		sum := results[k]
		for r, n := range w.counts {
			sum[r] += n
		}
		results[k] = sum
	}
	f := m.figures
	m.mu.Unlock()

	counter := func(name, help string, labels ...string) func(float64, ...string) {
		return to.Metric(prometheus.CounterValue, name, help, labels...)
	}
	result := counter("kernosis_probe_results_total",
		"Probes of a container, by result; unknown: the probe could not be run, or kubelet may not have counted its failure. Removed when the probe is no longer run.",
		"namespace", "pod", "container", "probe_type", "result", "feed")
	for k, counts := range results {
		for r, n := range counts {
			if n > 0 || Result(r) != Unknown { // export the usual ones from the start, so that rates are right
				result(float64(n), k.namespace, k.pod, k.container, string(k.kind), Result(r).String(), k.feed)
			}
		}
	}
	worker := to.Metric(prometheus.GaugeValue, "kernosis_probe_workers", "Probes that are counted.", "probe_type", "feed")
	for g, n := range workers {
		worker(float64(n), string(g.kind), g.feed)
	}
	overflowed := counter("kernosis_probe_results_overflowed_total", "Probes that have no series of their own, because there are too many.", "result")
	for r, n := range f.overflowed {
		overflowed(float64(n), Result(r).String())
	}
	counter("kernosis_probe_outcomes_ignored_total",
		"Probes that were observed but not counted: no such probe exists, or it was not due.")(float64(f.ignored))
	counter("kernosis_probe_pods_refused_total", "Times that a pod was ignored because there are too many.")(float64(f.refusedPods))
	dropped := counter("kernosis_probe_updates_dropped_total", "Changes of results that were dropped because their reader was too slow.", "probe_type")
	for _, k := range Kinds() {
		dropped(float64(m.results[k].Dropped()), string(k))
	}
}
