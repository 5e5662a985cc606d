// Package grafana generates the dashboards that the chart contains (docs/monitoring.md).
//
// Each dashboard is a list of rows of panels with queries. The generator adds ids, positions, the
// cluster variable in each selector, and what all panels have in common. It does not use Grafana's
// own SDK for dashboards, because these dashboards need only a dozen of its thousands of types.
package grafana
