package policy

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// The keys in Kubernetes' domains that may be set: load balancers leave the node out, and the
// cluster autoscaler does not remove it. Neither key changes anything on the node.
const (
	AllowedLabel      = "node.kubernetes.io/exclude-from-external-load-balancers"
	AllowedAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// SettableLabel reports whether Kernosis may set a label. It may not set labels with side effects.
func SettableLabel(key string) bool { return settable(key, AllowedLabel) }

// SettableAnnotation does the same for an annotation.
func SettableAnnotation(key string) bool { return settable(key, AllowedAnnotation) }

func settable(key, allowed string) bool {
	// Kernosis' own domain is excluded mainly because of the marks of its acts.
	return key != "" && (key == allowed || !Reserved(key) && !within(key, v1alpha1.Group))
}

// Reserved reports whether a key is in a domain in which Kubernetes, or programs that belong to it,
// define the meaning of names.
func Reserved(key string) bool { return within(key, "kubernetes.io", "k8s.io") }

func within(key string, domains ...string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(domains, func(d string) bool { return prefix == d || strings.HasSuffix(prefix, "."+d) })
}
