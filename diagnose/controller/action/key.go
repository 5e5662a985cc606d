package action

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// reserved reports whether a key is of a domain in which Kubernetes, or programs that are
// part of it, give names their meaning.
func reserved(key string) bool { return within(key, "kubernetes.io", "k8s.io") }

// ours reports whether a key is of Kernosis' domain: marks of what it has done, above all.
func ours(key string) bool { return within(key, v1alpha1.Group) }

func within(key string, domains ...string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(domains, func(d string) bool { return prefix == d || strings.HasSuffix(prefix, "."+d) })
}

func checkKey(what, key string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return refuse("%s %.80q: %s", what, key, strings.Join(wrong, "; "))
	}
	return nil
}

// settable refuses a key of a label or annotation that means more than what it says,
// but for one.
func settable(key, allowed string) error {
	if err := checkKey("key", key); err != nil {
		return err
	}
	if key != allowed && (reserved(key) || ours(key)) {
		return refuse("key %s is of a domain of Kubernetes or Kernosis; %s may be set", key, allowed)
	}
	return nil
}
