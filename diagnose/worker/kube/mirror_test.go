package kube

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

func version(uid string, n int) *v1alpha1.Diagnosis {
	d := diagnosisOf("ns", "d", "n1")
	d.UID, d.ResourceVersion = types.UID(uid), strconv.Itoa(n)
	return d
}

// Responses to requests and watch events come in any order: the known version never goes back.
func TestWhatIsKnownDoesNotGoBack(t *testing.T) {
	name := client.ObjectKeyFromObject(diagnosisOf("ns", "d", "n1"))
	for what, c := range map[string]struct {
		do   func(m *mirror[*v1alpha1.Diagnosis])
		want string // UID and version; empty: nothing is known
	}{
		"an answer, then an older change": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.take(version("a", 1))
			m.update(version("a", 9))
			if _, _, news := m.take(version("a", 5)); news {
				t.Error("an older change is news")
			}
		}, "a 9"},
		"an answer, then its own change": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.learn(version("a", 9))
			if _, _, news := m.take(version("a", 9)); !news {
				t.Error("the handler does not hear of it")
			}
		}, "a 9"},
		"an answer that is older than the watch": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.take(version("a", 10))
			m.update(version("a", 9))
		}, "a 10"},
		"made anew, then the end of the first": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.take(version("a", 1))
			m.learn(version("b", 9))
			m.drop(version("a", 8))
		}, "b 9"},
		"made, then a list from before": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.learn(version("a", 9))
			m.replace(nil, "8")
		}, "a 9"},
		"made, then a list without it": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.learn(version("a", 9))
			m.replace(nil, "12")
		}, ""},
		"its end, then an answer from before": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.take(version("a", 1))
			m.drop(version("a", 10))
			m.update(version("a", 9))
		}, ""},
		"an etcd that was put back to an earlier day": {func(m *mirror[*v1alpha1.Diagnosis]) {
			m.take(version("a", 90))
			m.replace([]*v1alpha1.Diagnosis{version("a", 5)}, "6")
			m.take(version("a", 7))
		}, "a 7"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMirror[*v1alpha1.Diagnosis]()
			c.do(m)
			got := ""
			if d, ok := m.get(name); ok {
				got = string(d.UID) + " " + d.ResourceVersion
			}
			if got != c.want {
				t.Errorf("%q is known, want %q", got, c.want)
			}
		})
	}
}

// Users of a namespace choose the metadata of their Diagnoses. Only what is read stays in memory.
func TestTrimKeepsOnlyKnownMetadata(t *testing.T) {
	d := diagnosisOf("shop", "a", "n1")
	d.Labels = map[string]string{v1alpha1.LabelTrigger: "hung", "kernosis.io/mine": "x", "team": "db"}
	d.Annotations = map[string]string{trigger.AnnotationSubject: "pg[811]", "kernosis.io/mine": strings.Repeat("a", 200<<10), "note": "x"}
	trim(d)
	if len(d.Labels) != 1 || d.Labels[v1alpha1.LabelTrigger] != "hung" || len(d.Annotations) != 1 || d.Annotations[trigger.AnnotationSubject] != "pg[811]" {
		t.Errorf("labels %v, %d annotations", d.Labels, len(d.Annotations))
	}
	if d.Spec.Parameters["device"] != "loop0" {
		t.Error("the run lacks its parameters")
	}
}
