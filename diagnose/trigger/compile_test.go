package trigger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// newTrigger returns a Trigger with a spec in YAML.
func newTrigger(tb testing.TB, name, spec string) *v1alpha1.Trigger {
	tb.Helper()
	t := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &t.Spec); err != nil {
		tb.Fatalf("%s: %s", spec, err)
	}
	return t
}

func compile(tb testing.TB, t *v1alpha1.Trigger) *trigger.Matcher {
	tb.Helper()
	m, err := trigger.Compile(t)
	if err != nil {
		tb.Fatalf("%s: %s", t.Name, err)
	}
	return m
}

func TestMistakesNameTheirFields(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/mistakes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			var want []string
			rest := string(f.Data)
			for strings.HasPrefix(rest, "# ") {
				var line string
				line, rest, _ = strings.Cut(rest, "\n")
				want = append(want, strings.TrimPrefix(line, "# "))
			}
			_, err := trigger.Compile(newTrigger(t, "t", rest))
			errs, ok := errors.AsType[trigger.Errors](err)
			if !ok {
				t.Fatalf("%T %v", err, err)
			}
			var have []string
			for _, e := range errs {
				have = append(have, e.Error())
			}
			// Compared as a set, because the order of the checks is not guaranteed.
			for _, w := range want {
				if !slices.Contains(have, w) {
					t.Errorf("not reported: %s", w)
				}
			}
			for _, h := range have {
				if !slices.Contains(want, h) {
					t.Errorf("reported: %s", h)
				}
			}
		})
	}
}

func TestReasonOfMistakes(t *testing.T) {
	for spec, want := range map[string]string{
		`{operationSet: s, nodeName: n7, sourceTemplate: {cronTemplate: {schedule: "61 * * * *"}}}`:                 v1alpha1.ReasonInvalidSchedule,
		`{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: "(", message: "("}}}}`:       v1alpha1.ReasonInvalidRegexp,
		`{operationSet: s, nodeName: N7, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: "("}}}}`:       v1alpha1.ReasonInvalid,
		`{operationSet: s, parameters: {"-": x}, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: a}}}}`: v1alpha1.ReasonInvalidParameter,
	} {
		_, err := trigger.Compile(newTrigger(t, "t", spec))
		if errs, _ := errors.AsType[trigger.Errors](err); errs.Reason() != want {
			t.Errorf("%s: %s, want %s", spec, errs.Reason(), want)
		}
	}
	if got := (trigger.Errors)(nil).Reason(); got != v1alpha1.ReasonAccepted {
		t.Error(got)
	}
}

func TestNameThatIsNoLabel(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("a", 64), "a b"} {
		_, err := trigger.Compile(newTrigger(t, name, `{operationSet: s, sourceTemplate: {problemTemplate: {rules: [r]}}}`))
		if err == nil || !strings.HasPrefix(err.Error(), "metadata.name: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// There is room for all parameters, or the Trigger is rejected: none is dropped later.
func TestRoomForParameters(t *testing.T) {
	spec := func(n int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("own%d: x", i))
		}
		return `{operationSet: s, parameters: {` + strings.Join(names, ", ") + `}, sourceTemplate: {problemTemplate: {rules: [r]}}}`
	}
	compile(t, newTrigger(t, "t", spec(34)))
	_, err := trigger.Compile(newTrigger(t, "t", spec(35)))
	if want := "spec.parameters: 35 names, and up to 30 more from the source: want at most 64"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestWhatHasNoEffect(t *testing.T) {
	for field, spec := range map[string]string{
		"spec.nodeName":       `{operationSet: s, nodeName: n7, sourceTemplate: {problemTemplate: {rules: [r]}}}`,
		"spec.targetSelector": `{operationSet: s, targetSelector: {nodeNames: [n7]}, sourceTemplate: {problemTemplate: {rules: [r]}}}`,
	} {
		if w := compile(t, newTrigger(t, "t", spec)).Warnings(); len(w) != 1 || w[0].Field != field {
			t.Errorf("%s: %v", spec, w)
		}
	}
}

// An Event may be anybody's, and nodeName is not a choice of the Event.
func TestEventsOnGivenNodes(t *testing.T) {
	for spec, warned := range map[string]bool{
		`{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: a}}}}`:                                               false,
		`{operationSet: s, nodeName: n7, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: a, source: {component: ^kubelet$}}}}}`: true,
		`{operationSet: s, targetSelector: {nodeNames: [n7]}, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: a}}}}`:            true,
		`{operationSet: s, nodeName: n7, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: a, namespace: ^default$}}}}`:           false,
	} {
		w := compile(t, newTrigger(t, "t", spec)).Warnings()
		if (len(w) > 0) != warned || warned && w[0].Reason != trigger.Untrusted {
			t.Errorf("%s: %v", spec, w)
		}
	}
}

func TestScheduleBeyondTheRateLimit(t *testing.T) {
	for spec, warned := range map[string]bool{
		`{operationSet: s, nodeName: n7, sourceTemplate: {cronTemplate: {schedule: "* * * * *"}}}`:                                      true,
		`{operationSet: s, nodeName: n7, sourceTemplate: {cronTemplate: {schedule: "*/3 9-10 * * *"}}}`:                                 false,
		`{operationSet: s, nodeName: n7, sourceTemplate: {cronTemplate: {schedule: "*/2 9-10 * * *"}}}`:                                 true,
		`{operationSet: s, nodeName: n7, rateLimit: {count: 60, within: 1h}, sourceTemplate: {cronTemplate: {schedule: "@every 1m"}}}`:  false,
		`{operationSet: s, nodeName: n7, rateLimit: {count: 60, within: 1h}, sourceTemplate: {cronTemplate: {schedule: "@every 59s"}}}`: true,
	} {
		m := compile(t, newTrigger(t, "t", spec))
		if (len(m.Warnings()) > 0) != warned {
			t.Errorf("%s: %v", spec, m.Warnings())
		}
	}
}

// Later changes of the object don't affect the compiled Trigger.
func TestTheTriggerIsNotKept(t *testing.T) {
	obj := newTrigger(t, "t", `{operationSet: s, parameters: {a: b}, cooldown: 0s, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	e := engineOf(t, compile(t, obj))
	obj.Spec.Parameters["a"] = "c"
	obj.Spec.SourceTemplate.ProblemTemplate.Rules[0] = "x"
	dx := only(t, e.Problem(firing("oom-kill", "g", start), nil, start))
	if dx.Spec.Parameters["a"] != "b" {
		t.Error(dx.Spec.Parameters)
	}
	dx.Spec.Parameters["a"] = "d"
	if again := only(t, e.Problem(firing("oom-kill", "h", start), nil, start)); again.Spec.Parameters["a"] != "b" {
		t.Error(again.Spec.Parameters)
	}
}
