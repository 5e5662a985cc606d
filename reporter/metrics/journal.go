package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/reporter/journal"
)

// Journal registers the counters of a journal, read at each scrape.
func (m *Metrics) Journal(stats func() journal.Stats) {
	counter := func(name, help string, value func(journal.Stats) float64) {
		m.Own.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return value(stats()) }))
	}
	counter("kernosis_journal_entries_total", "Entries written to the journal.",
		func(s journal.Stats) float64 { return float64(s.Appended) })
	counter("kernosis_journal_failed_total", "Entries lost because the journal could not be written.",
		func(s journal.Stats) float64 { return float64(s.Failed) })
	counter("kernosis_journal_dropped_segments_total", "Old segments removed to keep the journal's bound.",
		func(s journal.Stats) float64 { return float64(s.DroppedSegments) })
	counter("kernosis_journal_torn_bytes_total", "Bytes of an unfinished last entry, cut off at start.",
		func(s journal.Stats) float64 { return float64(s.TornBytes) })
	m.Own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kernosis_journal_bytes", Help: "Size of the journal on disk.",
	}, func() float64 { return float64(stats().Bytes) }))
}
