// Package admission has the tests of the ValidatingAdmissionPolicies that keep Kernosis'
// agents and the users of namespaces to what is theirs (docs/security.md). The policies are
// the chart's: deploy/chart/kernosis/templates/admission-*.yaml.
package admission
