// Package grafana generates the dashboards, which the chart holds (docs/monitoring.md).
//
// Each dashboard is a list of rows of panels with queries. The generator adds ids, places, the
// cluster variable in each selector, and what all panels have in common. Grafana's own generator
// of such files is not used: of its thousands of types these dashboards would need a dozen.
package grafana
