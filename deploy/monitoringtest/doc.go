// Package monitoringtest checks dashboards and alerts against the metrics that agents and
// controller export: it holds what the tests of both share, and a test with real faults and a real
// Prometheus.
//
// Only tests import it.
package monitoringtest
