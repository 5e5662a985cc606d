// Package rbac holds the ClusterRoles of the people who use Kernosis (docs/security.md).
package rbac

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS
