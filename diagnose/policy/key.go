package policy

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// What may be set of Kubernetes' domains: both keep a sick node from being counted on,
// and change nothing on it.
const (
	AllowedLabel      = "node.kubernetes.io/exclude-from-external-load-balancers"
	AllowedAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// SettableLabel reports whether Kernosis sets a label: none that means more than what it
// says.
func SettableLabel(key string) bool { return settable(key, AllowedLabel) }

// SettableAnnotation reports the same of an annotation.
func SettableAnnotation(key string) bool { return settable(key, AllowedAnnotation) }

func settable(key, allowed string) bool {
	// Kernosis' own domain has the marks of what it has done, above all.
	return key != "" && (key == allowed || !Reserved(key) && !within(key, v1alpha1.Group))
}

// Reserved reports whether a key is of a domain in which Kubernetes, or programs that are
// part of it, give names their meaning.
func Reserved(key string) bool { return within(key, "kubernetes.io", "k8s.io") }

func within(key string, domains ...string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(domains, func(d string) bool { return prefix == d || strings.HasSuffix(prefix, "."+d) })
}
