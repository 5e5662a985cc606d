package journal

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the journal's metrics. A scrape reads them without waiting for the disk.
func (j *Journal) Metrics() []prometheus.Collector {
	counter := func(name, help string, value func(Stats) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return value(j.Stats()) })
	}
	gauge := func(name, help string, value func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(j.Stats()) })
	}
	return []prometheus.Collector{
		counter("kernosis_journal_entries_total", "Entries written to the journal.", func(s Stats) float64 { return float64(s.Appended) }),
		counter("kernosis_journal_failed_total", "Entries lost because the journal could not be written.", func(s Stats) float64 { return float64(s.Failed) }),
		counter("kernosis_journal_dropped_segments_total", "Old segments removed to keep the journal within its size limit.", func(s Stats) float64 { return float64(s.DroppedSegments) }),
		counter("kernosis_journal_torn_bytes_total", "Bytes of an incomplete last entry, cut off at startup.", func(s Stats) float64 { return float64(s.TornBytes) }),
		counter("kernosis_journal_damaged_total", "Lines and segments of the journal that could not be read at startup.", func(s Stats) float64 { return float64(s.Damaged) }),
		gauge("kernosis_journal_bytes", "Size of the journal on disk.", func(s Stats) float64 { return float64(s.Bytes) }),
		gauge("kernosis_journal_waiting_entries", "Entries in memory that are waiting for the disk.", func(s Stats) float64 { return float64(s.Waiting) }),
		gauge("kernosis_journal_late_seconds", "How long the disk has not responded; 0 if it responds.", func(s Stats) float64 { return s.Late.Seconds() }),
	}
}
