package facts

import (
	"bytes"
	"encoding/json"

	"github.com/kernosis/kernosis/collector/event"
)

// Annotations of an Event, about its latest occurrence. They are API.
const (
	prefix              = "kernosis.io/"
	AnnotationKind      = prefix + "kind"
	AnnotationVerdict   = prefix + "verdict"
	AnnotationCause     = prefix + "cause"
	AnnotationBecause   = prefix + "because"
	AnnotationState     = prefix + "state"
	AnnotationContainer = prefix + "container"
	AnnotationEvidence  = prefix + "evidence" // a JSON list
	AnnotationExcluded  = prefix + "excluded" // a JSON list
	AnnotationDoc       = prefix + "doc"
)

// Keys returns all annotations' names.
func Keys() []string {
	return []string{
		AnnotationKind, AnnotationVerdict, AnnotationCause, AnnotationBecause, AnnotationState, AnnotationContainer,
		AnnotationEvidence, AnnotationExcluded, AnnotationDoc,
	}
}

// MaxAnnotations bounds names and values of all annotations together, in bytes.
const MaxAnnotations = 2 << 10

// words are the facts that are one text each, the most telling first.
func (f *Facts) words() []struct {
	key string
	at  *string
} {
	return []struct {
		key string
		at  *string
	}{
		{AnnotationDoc, &f.Doc}, {AnnotationVerdict, &f.Verdict}, {AnnotationState, &f.State}, {AnnotationCause, &f.Cause},
		{AnnotationBecause, &f.Because}, {AnnotationContainer, &f.Container},
	}
}

// Annotations returns the facts as annotations; nil: there are none. What is beyond the
// bound is left out from the end, exclusions first: what is said is whole.
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
			if put(l.key, list(l.list[:n])) {
				break
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func list(texts []string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(texts) != nil {
		return "" // text always encodes
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// FromAnnotations returns the facts that an Event carries. Others may have written it: text
// is escaped and bounded, and what is no list is left out.
func FromAnnotations(a map[string]string) Facts {
	f := Facts{Kind: event.Kind(a[AnnotationKind])}
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
