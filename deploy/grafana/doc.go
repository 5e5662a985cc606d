// Package grafana makes the dashboards of this folder (docs/monitoring.md).
//
// Each dashboard is a list of panels with queries; ids, places and what all panels have in
// common follow from that. Grafana's own generator of such files is not used: of its
// thousands of types these dashboards need a dozen.
package grafana
