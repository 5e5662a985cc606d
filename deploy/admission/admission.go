// Package admission holds the ValidatingAdmissionPolicies that keep Kernosis' agents and
// the users of namespaces to what is theirs (docs/security.md), one file each with its
// binding.
//
// They name the namespace "kernosis", the service accounts "kernosis-agent" and
// "kernosis-controller" in it, and nothing else of an installation.
package admission

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS
