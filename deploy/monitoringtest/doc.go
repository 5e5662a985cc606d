// Package monitoringtest holds dashboards and alerts to what agents and controller show:
// what the tests of both share, and a test with real faults and a real Prometheus.
//
// Only tests import it.
package monitoringtest
