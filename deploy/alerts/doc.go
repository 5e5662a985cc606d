// Package alerts generates Prometheus alerts from detector rules and adds those on Kernosis itself
// (docs/monitoring.md).
//
// The output is deterministic. It refers to metrics only by name: tests check that they exist and
// that each alert fires and resolves.
package alerts
