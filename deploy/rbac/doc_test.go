// Package rbac tests the ClusterRoles for the users of Kernosis (docs/security.md), which come from
// the chart: deploy/chart/kernosis/templates/people.yaml.
package rbac
