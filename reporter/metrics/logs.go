package metrics

import "github.com/prometheus/client_golang/prometheus"

// LogStats is what one log has counted since the agent started.
type LogStats struct {
	Log                                             string
	Lines, Bytes, Matched, Skipped, Cut, SaveErrors uint64
	Lost                                            []LogLoss
}

// LogLoss is how often lines were lost for a reason, and how many as far as that
// is known.
type LogLoss struct {
	Reason       string
	Times, Lines uint64
}

// Logs registers the counters of the logs, read at each scrape.
func (m *Metrics) Logs(stats func() []LogStats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"log"}, labels...), nil)
	}
	m.Own.MustRegister(&logCollector{
		stats:   stats,
		lines:   desc("kernosis_log_lines_total", "Lines of a log that were read."),
		bytes:   desc("kernosis_log_bytes_total", "Bytes of text of the lines that were read."),
		matched: desc("kernosis_log_lines_matched_total", "Lines that the pattern of a rule matched."),
		skipped: desc("kernosis_log_lines_skipped_total", "Lines of an earlier boot, or of the beginning of this one where that is not wanted."),
		cut:     desc("kernosis_log_lines_cut_total", "Lines so long that their end was not looked at."),
		lost:    desc("kernosis_log_lines_lost_total", "Lines that were lost, by reason, as far as it is known how many.", "reason"),
		losses:  desc("kernosis_log_losses_total", "Times that lines of a log were or may have been lost, by reason.", "reason"),
		unsaved: desc("kernosis_log_position_errors_total", "Times that the position in a log could not be saved."),
	})
}

// logCollector implements prometheus.Collector.
type logCollector struct {
	stats func() []LogStats

	lines, bytes, matched, skipped, cut, lost, losses, unsaved *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *logCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lines, c.bytes, c.matched, c.skipped, c.cut, c.lost, c.losses, c.unsaved} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *logCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.stats() {
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{s.Log}, labels...)...)
		}
		counter(c.lines, s.Lines)
		counter(c.bytes, s.Bytes)
		counter(c.matched, s.Matched)
		counter(c.skipped, s.Skipped)
		counter(c.cut, s.Cut)
		counter(c.unsaved, s.SaveErrors)
		for _, l := range s.Lost {
			counter(c.lost, l.Lines, l.Reason)
			counter(c.losses, l.Times, l.Reason)
		}
	}
}
