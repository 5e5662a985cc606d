// Package metrics turns what passes through the agent into Prometheus metrics.
//
// Labels are bounded: kinds, stems, rules and condition types come from the
// code or from rule files, never from a fault's subject. Problems are shown as
// counts by rule; which pod or device it was is the journal's to report.
package metrics
