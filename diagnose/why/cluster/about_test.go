package cluster

import (
	"cmp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/why"
)

// A Diagnosis of an earlier pod with the same name is not about the pod.
func TestDiagnosisOfAnEarlierPod(t *testing.T) {
	created := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		uid, parameter string
		pod            string        // default: web-0
		age            time.Duration // at the pod's creation
		static         bool
		want           bool
	}{
		"its UID":                      {uid: "u", want: true},
		"its UID, as a parameter":      {parameter: "u", want: true},
		"another UID":                  {uid: "other"},
		"another UID, as a parameter":  {parameter: "other"},
		"its UID, about another pod":   {uid: "u", pod: "web-1"},
		"no UID, about another pod":    {pod: "web-1"},
		"no UID, older":                {age: time.Second},
		"no UID, of the same second":   {want: true},
		"no UID, older, static pod":    {age: time.Second, static: true, want: true},
		"another UID, of a static pod": {uid: "other", static: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{created: created, in: why.Input{
				Subject: why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-0", UID: "u"}, Pods: map[string]string{"u": "shop/web-0"},
			}}
			if c.static {
				r.created = time.Time{}
			}
			d := &v1alpha1.Diagnosis{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created.Add(-c.age)), Annotations: map[string]string{trigger.AnnotationPodUID: c.uid}},
				Spec:       v1alpha1.DiagnosisSpec{PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: cmp.Or(c.pod, "web-0")}, Parameters: v1alpha1.Parameters{"podUID": c.parameter}},
			}
			if got := r.about(d); got != c.want {
				t.Errorf("about it: %v, want %v", got, c.want)
			}
		})
	}
}
