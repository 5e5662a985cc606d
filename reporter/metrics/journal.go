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
	gauge := func(name, help string, value func(journal.Stats) float64) {
		m.Own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(stats()) }))
	}
	gauge("kernosis_journal_bytes", "Size of the journal on disk.",
		func(s journal.Stats) float64 { return float64(s.Bytes) })
	gauge("kernosis_journal_waiting_entries", "Entries in memory that wait for the disk.",
		func(s journal.Stats) float64 { return float64(s.Waiting) })
	gauge("kernosis_journal_late_seconds", "How long the disk has not answered; 0: it does.",
		func(s journal.Stats) float64 { return s.Late.Seconds() })
}
