// Package monitoring generates Prometheus alerts and Grafana dashboards (docs/monitoring.md).
//
// There is an alert for each problem that the detector's rules detect, and alerts on Kernosis itself
// (own.yaml). A dashboard is a list of rows of panels with queries, to which the generator adds ids,
// positions, the cluster variable in each selector, and what all panels have in common. It does not
// use Grafana's own SDK, because these dashboards need only a dozen of its thousands of types.
//
// The output is deterministic. It refers to metrics only by name: tests check that they exist, that
// each alert fires and resolves, and that a real Prometheus answers each query.
package monitoring
