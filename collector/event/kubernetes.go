package event

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Annotations of a Kubernetes Event, about its latest occurrence. They are part of our API.
const (
	annotationPrefix    = "kernosis.io/"
	AnnotationKind      = annotationPrefix + "kind"
	AnnotationVerdict   = annotationPrefix + "verdict"
	AnnotationCause     = annotationPrefix + "cause"
	AnnotationBecause   = annotationPrefix + "because"
	AnnotationState     = annotationPrefix + "state"
	AnnotationContainer = annotationPrefix + "container"
	AnnotationEvidence  = annotationPrefix + "evidence" // a JSON list
	AnnotationExcluded  = annotationPrefix + "excluded" // a JSON list
	AnnotationDoc       = annotationPrefix + "doc"
)

// AnnotationKeys returns all annotations' names.
func AnnotationKeys() []string {
	return []string{
		AnnotationKind, AnnotationVerdict, AnnotationCause, AnnotationBecause, AnnotationState, AnnotationContainer,
		AnnotationEvidence, AnnotationExcluded, AnnotationDoc,
	}
}

// MaxAnnotations bounds names and values of all annotations together, in bytes.
const MaxAnnotations = 2 << 10

// word is a fact that is a single text, and its annotation.
type word struct {
	key string
	at  *string
}

// words returns all of them, the most important first.
func (f *Facts) words() []word {
	return []word{
		{AnnotationDoc, &f.Doc}, {AnnotationVerdict, &f.Verdict}, {AnnotationState, &f.State}, {AnnotationCause, &f.Cause},
		{AnnotationBecause, &f.Because}, {AnnotationContainer, &f.Container},
	}
}

// Annotations returns the facts as annotations, or nil if there are none. Facts that exceed the
// bound are omitted from the end, exclusions first; no text is cut.
func (f *Facts) Annotations() map[string]string {
	out := map[string]string{}
	left := MaxAnnotations
	put := func(key, value string) bool {
		if value == "" || len(key)+len(value) > left {
			return false
		}
		out[key] = value
		left -= len(key) + len(value)
		return true
	}
	put(AnnotationKind, string(f.Kind))
	for _, w := range f.words() {
		put(w.key, *w.at)
	}
	for _, l := range []struct {
		key  string
		list []string
	}{{AnnotationEvidence, f.Evidence}, {AnnotationExcluded, f.Excluded}} {
		for n := len(l.list); n > 0; n-- {
			if put(l.key, jsonList(l.list[:n])) {
				break
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func jsonList(texts []string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(texts) != nil {
		return "" // text always encodes
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// FactsOf returns the facts in the annotations of an Event of the API. Others may have written that
// Event: text is escaped and bounded, and invalid lists are dropped.
func FactsOf(a map[string]string) Facts {
	f := Facts{Kind: Kind(a[AnnotationKind])}
	for _, w := range f.words() {
		*w.at = a[w.key]
	}
	for key, to := range map[string]*[]string{AnnotationEvidence: &f.Evidence, AnnotationExcluded: &f.Excluded} {
		if text := a[key]; text != "" && len(text) <= MaxAnnotations && json.Unmarshal([]byte(text), to) != nil {
			*to = nil
		}
	}
	f.bound()
	return f
}

// KubernetesCondition reports whether a type of node condition belongs to Kubernetes, so that only
// kubelet and the cloud provider set it: Ready, NetworkUnavailable, and all that end in Pressure,
// as kubelet may get more of these. The chart's admission policy refuses a status update of an
// agent with such a condition, and with it all conditions that the agent writes.
func KubernetesCondition(conditionType string) bool {
	return conditionType == "Ready" || conditionType == "NetworkUnavailable" || strings.HasSuffix(conditionType, "Pressure")
}
