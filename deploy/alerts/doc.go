// Package alerts makes Prometheus alerts of detector rules, beside those on Kernosis
// itself (docs/monitoring.md).
//
// The same rules give the same text to the byte. It speaks of metrics by their names
// alone: that these are there, and that each alert fires and ends, the tests show.
package alerts
