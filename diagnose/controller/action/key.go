package action

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

func checkKey(what, key string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return refuse("%s %.80q: %s", what, key, strings.Join(wrong, "; "))
	}
	return nil
}

// settable refuses a key of a label or annotation that may not be set.
func settable(key string, may func(string) bool, allowed string) error {
	if err := checkKey("key", key); err != nil {
		return err
	}
	if !may(key) {
		return refuse("key %s is in a domain of Kubernetes or Kernosis; %s may be set", key, allowed)
	}
	return nil
}
