package logsource

import (
	"maps"

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

func (l *source) statsNow() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Lost = maps.Clone(s.Lost)
	return s
}

// descs are the metrics of logs.
type descs struct {
	lines, bytes, matched, skipped, cut, lost, losses, unsaved *prometheus.Desc
}

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"log"}, labels...), nil)
	}
	return descs{
		lines:   desc("kernosis_log_lines_total", "Lines of a log that were read."),
		bytes:   desc("kernosis_log_bytes_total", "Bytes of text of the lines that were read."),
		matched: desc("kernosis_log_lines_matched_total", "Lines that the pattern of a rule matched."),
		skipped: desc("kernosis_log_lines_skipped_total", "Lines that were skipped because they are of an earlier boot or before the configured start."),
		cut:     desc("kernosis_log_lines_cut_total", "Lines that were cut because they were too long."),
		lost:    desc("kernosis_log_lines_lost_total", "Lines that were lost, by reason, where their number is known.", "reason"),
		losses:  desc("kernosis_log_losses_total", "Times that lines of a log were or may have been lost, by reason.", "reason"),
		unsaved: desc("kernosis_log_position_errors_total", "Times that the position in a log could not be saved."),
	}
}

// Describe implements prometheus.Collector.
func (s *Sources) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.lines, d.bytes, d.matched, d.skipped, d.cut, d.lost, d.losses, d.unsaved} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Sources) Collect(ch chan<- prometheus.Metric) {
	d := newDescs()
	for _, l := range s.Stats() {
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{l.Name}, labels...)...)
		}
		counter(d.lines, l.Lines)
		counter(d.bytes, l.Bytes)
		counter(d.matched, l.Matched)
		counter(d.skipped, l.Skipped)
		counter(d.cut, l.Cut)
		counter(d.unsaved, l.SaveErrors)
		for reason, lost := range l.Lost {
			counter(d.lost, lost.Lines, string(reason))
			counter(d.losses, lost.Times, string(reason))
		}
	}
}
