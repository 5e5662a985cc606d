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

// admit reports whether one more worker may have series, and counts it.
func (f *figures) admit() bool {
	if f.shown >= maxShown {
		return false
	}
	f.shown++
	return true
}

func (f *figures) release(shown bool) {
	if shown {
		f.shown--
	}
}

// bump counts a result; mu is held.
func (m *Manager) bump(w *worker, r Result) {
	if w.shown {
		w.counts[r]++
		return
	}
	m.figures.overflowed[r]++
}

type descriptions struct {
	results, overflowed, workers, ignored, refused, dropped *prometheus.Desc
}

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descriptions{
		results: desc("kernosis_probe_results_total",
			"Probes of a container, by result; unknown: the probe could not be run, or kubelet may not have counted its failure. Removed when the probe is no longer run.",
			"namespace", "pod", "container", "probe_type", "result", "feed"),
		overflowed: desc("kernosis_probe_results_overflowed_total",
			"Probes that have no series of their own, because there are too many.", "result"),
		workers: desc("kernosis_probe_workers", "Probes that are counted.", "probe_type", "feed"),
		ignored: desc("kernosis_probe_outcomes_ignored_total",
			"Probes that were observed but not counted: no such probe exists, or it was not due."),
		refused: desc("kernosis_probe_pods_refused_total", "Times that a pod was ignored because there are too many."),
		dropped: desc("kernosis_probe_updates_dropped_total", "Changes of results that were dropped because their reader was too slow.", "probe_type"),
	}
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	d := &m.desc
	for _, desc := range []*prometheus.Desc{d.results, d.overflowed, d.workers, d.ignored, d.refused, d.dropped} {
		ch <- desc
	}
}

// series identifies a series of results. Two pods of the same name, the second created while the
// first one ends, share theirs.
type series struct {
	namespace, pod, container string
	kind                      Kind
	feed                      string
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
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

	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for k, counts := range results {
		for r, n := range counts {
			if n > 0 || Result(r) != Unknown { // export the usual ones from the start, so that rates are right
				counter(m.desc.results, n, k.namespace, k.pod, k.container, string(k.kind), Result(r).String(), k.feed)
			}
		}
	}
	for g, n := range workers {
		ch <- prometheus.MustNewConstMetric(m.desc.workers, prometheus.GaugeValue, float64(n), string(g.kind), g.feed)
	}
	for r, n := range f.overflowed {
		counter(m.desc.overflowed, n, Result(r).String())
	}
	counter(m.desc.ignored, f.ignored)
	counter(m.desc.refused, f.refusedPods)
	for _, k := range Kinds() {
		counter(m.desc.dropped, m.results[k].Dropped(), string(k))
	}
}
