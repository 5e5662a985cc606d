// Package rbac has the tests of the ClusterRoles of the people who use Kernosis
// (docs/security.md), which are the chart's: deploy/chart/kernosis/templates/people.yaml.
package rbac
