package logsource

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/logs"
)

// Lost counts the losses for one reason.
type Lost struct {
	Times uint64
	Lines uint64 // as far as the number is known
}

// Stats are the counters of one log. Lines that were read are Matched, Skipped, or matched by
// nothing; those in Lost were not read.
type Stats struct {
	Name string

	Lines, Bytes uint64
	Matched      uint64 // lines that a pattern matched
	Skipped      uint64 // lines of an earlier boot, or of the beginning of this one
	Cut          uint64 // lines whose end was not examined
	Lost         map[logs.Reason]Lost
	SaveErrors   uint64 // failed attempts to save the position
}

// Describe implements prometheus.Collector.
func (s *Sources) Describe(ch chan<- *prometheus.Desc) {
	one := Stats{Lost: map[logs.Reason]Lost{"": {}}} // so that there are all metrics
	for _, m := range one.metrics() {
		ch <- m.Desc()
	}
}

// Collect implements prometheus.Collector.
func (s *Sources) Collect(ch chan<- prometheus.Metric) {
	for _, l := range s.Stats() {
		for _, m := range l.metrics() {
			ch <- m
		}
	}
}

// metrics returns the counters for Prometheus.
func (s *Stats) metrics() (all []prometheus.Metric) {
	add := func(name, help string, n uint64, reason ...string) {
		desc := prometheus.NewDesc(name, help, []string{"log", "reason"}[:1+len(reason)], nil)
		labels := append([]string{s.Name}, reason...)
		all = append(all, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...))
	}
	add("kernosis_log_lines_total", "Lines of a log that were read.", s.Lines)
	add("kernosis_log_bytes_total", "Bytes of text of the lines that were read.", s.Bytes)
	add("kernosis_log_lines_matched_total", "Lines that the pattern of a rule matched.", s.Matched)
	add("kernosis_log_lines_skipped_total", "Lines that were skipped because they are of an earlier boot or before the configured start.", s.Skipped)
	add("kernosis_log_lines_cut_total", "Lines that were cut because they were too long.", s.Cut)
	add("kernosis_log_position_errors_total", "Times that the position in a log could not be saved.", s.SaveErrors)
	for reason, lost := range s.Lost {
		add("kernosis_log_lines_lost_total", "Lines that were lost, by reason, where their number is known.", lost.Lines, string(reason))
		add("kernosis_log_losses_total", "Times that lines of a log were or may have been lost, by reason.", lost.Times, string(reason))
	}
	return all
}
