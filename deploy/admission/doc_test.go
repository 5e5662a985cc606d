// Package admission tests the ValidatingAdmissionPolicies that restrict Kernosis' agents and the
// users of namespaces to their own objects (docs/security.md). The policies come from the chart:
// deploy/chart/kernosis/templates/admission-*.yaml.
package admission
