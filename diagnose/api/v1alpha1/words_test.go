package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// The API does not import the detector, but uses the same words.
func TestWordsAreThoseOfTheDetector(t *testing.T) {
	for api, ours := range map[v1alpha1.Severity]problem.Severity{
		v1alpha1.SeverityInfo: problem.Info, v1alpha1.SeverityWarning: problem.Warning, v1alpha1.SeverityCritical: problem.Critical,
	} {
		if string(api) != string(ours) {
			t.Errorf("severity %q, package problem has %q", api, ours)
		}
	}
}

func TestDeclaredEffect(t *testing.T) {
	script, builtin := v1alpha1.Processor{ScriptRunner: &v1alpha1.ScriptRunner{}}, v1alpha1.Processor{Builtin: &v1alpha1.Builtin{}}
	for _, test := range []struct {
		spec v1alpha1.OperationSpec
		want v1alpha1.Effect
	}{
		{v1alpha1.OperationSpec{Processor: script}, v1alpha1.EffectRemediate},
		{v1alpha1.OperationSpec{Processor: script, Effect: v1alpha1.EffectCollect}, v1alpha1.EffectCollect},
		{v1alpha1.OperationSpec{Processor: builtin}, ""},
	} {
		if have := test.spec.DeclaredEffect(); have != test.want {
			t.Errorf("%+v: %q", test.spec, have)
		}
	}
}

func TestSelector(t *testing.T) {
	var none *v1alpha1.LabelSelector
	web := labels.Set{"app": "web", "tier": "front"}
	for name, test := range map[string]struct {
		selector *v1alpha1.LabelSelector
		want     bool
	}{
		"none":  {none, false},
		"empty": {&v1alpha1.LabelSelector{}, true},
		"label": {&v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, true},
		"other": {&v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false},
		"not in": {&v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{
			{Key: "app", Operator: "NotIn", Values: []string{"db"}}, {Key: "tier", Operator: "Exists"},
		}}, true},
	} {
		s, err := test.selector.Selector()
		if err != nil {
			t.Fatal(err)
		}
		if have := s.Matches(web); have != test.want {
			t.Errorf("%s: %v", name, have)
		}
	}
	if _, err := (&v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{{Key: "a", Operator: "In"}}}).Selector(); err == nil {
		t.Error("In without values is taken")
	}
}
