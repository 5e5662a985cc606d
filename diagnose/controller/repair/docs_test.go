package repair

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page's examples are accepted by the API server, and can be run.
func TestExamplesOfThePage(t *testing.T) {
	b := newBench(t)
	codecs := serializer.NewCodecFactory(scheme(t), serializer.EnableStrict)
	var sets []*v1alpha1.OperationSet
	operations := map[string]*v1alpha1.Operation{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page(t, "remediation.md"), -1) {
		for part := range strings.SplitSeq(block[1], "---\n") {
			decoded, _, err := codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
			if err != nil {
				t.Fatalf("%s\n%s", err, part)
			}
			o := decoded.(client.Object)
			if err := b.client.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("%s: %v", o.GetName(), err)
			}
			switch o := o.(type) {
			case *v1alpha1.OperationSet:
				sets = append(sets, o)
			case *v1alpha1.Operation:
				operations[o.Name] = o
			case *v1alpha1.Trigger:
				if _, err := trigger.Compile(o); err != nil {
					t.Error(err)
				}
			case *v1alpha1.RemediationPolicy:
				if err := policy.New(o).Err(); err != nil {
					t.Error(err)
				}
				for _, step := range o.Spec.Escalation {
					if c := (&resolve.Config{Builtins: b.agents.built, Operation: func(name string) *v1alpha1.Operation { return operations[name] }}); c.Effect(step.Operation) != "Remediate" {
						t.Errorf("%s: step %s is no repair", o.Name, step.Operation)
					}
				}
			}
		}
	}
	for _, s := range sets {
		if _, err := resolve.Set(resolve.Config{Builtins: b.agents.built, Operation: func(name string) *v1alpha1.Operation { return operations[name] }}, s); err != nil {
			t.Error(err)
		}
	}
	if len(sets) != 2 {
		t.Errorf("%d OperationSets", len(sets))
	}
}

// The page's table lists exactly the existing Events.
func TestThePageHasAllEvents(t *testing.T) {
	var used, listed []string
	for _, b := range catalog.All(operation.Host{}) {
		kind, ok := actionKinds()[b.Name]
		if ok != b.ByController {
			t.Errorf("%s: the controller makes it: %v, it is declared so: %v", b.Name, ok, b.ByController)
		}
		if ok {
			used = append(used, kind.done, kind.would)
		}
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(Repair[A-Z]\w+|Repaired|WouldRepair)"`).FindAllStringSubmatch(string(text), -1) {
			used = append(used, m[1])
		}
	}
	_, table, _ := strings.Cut(page(t, "remediation.md"), "## Events")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\|(.*?)\| (Normal|Warning) \|`).FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	slices.Sort(used)
	slices.Sort(listed)
	if used = slices.Compact(used); !slices.Equal(used, listed) {
		t.Errorf("the code has %v\nthe page has %v", used, listed)
	}
}

// The metrics page lists all metrics of repairs, with their labels.
func TestThePageHasAllMetrics(t *testing.T) {
	_, text, _ := strings.Cut(page(t, "metrics.md"), "\n## Controller\n")
	rows := []string{
		"kernosis_remediation_decisions_total` | counter | `policy` `verb` `reason`",
		"kernosis_remediation_repairs_total` | counter | `operation` `outcome`",
		"kernosis_remediation_verifications_total` | counter | `operation` `result`",
		"kernosis_remediation_paused` | gauge | `policy` `reason`",
	}
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for _, m := range policyMetrics(&v1alpha1.RemediationPolicy{}, v1alpha1.BudgetUse{}, "") {
		rows = append(rows, name.FindStringSubmatch(m.Desc().String())[1]+"` | gauge | `policy`")
	}
	for _, row := range rows {
		if !strings.Contains(text, "| `"+row+" |") {
			t.Errorf("there is no %s", row)
		}
	}
}
