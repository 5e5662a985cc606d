package tenancy_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

const (
	system = "kernosis"
	ownUID = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"
	others = "11111111-7c1a-4e0b-9a53-2f1c8e4d7b60"
)

func web() tenancy.Pod {
	return tenancy.Pod{
		Namespace: "shop", Name: "web-0", UID: ownUID, Node: "n7",
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")},
	}
}

// read parses manifests, and returns the config and the set in them.
func read(t *testing.T, text string, builtins []operation.Builtin) (resolve.Config, *v1alpha1.OperationSet) {
	t.Helper()
	m, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Parse(document.File{Name: "set.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return resolve.Of(s.Operations, builtins), s.OperationSets[0]
}

// set returns the YAML of an OperationSet that runs operations one after the other, each with the
// results of all before it.
func set(operations ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: kernosis.io/v1alpha1\nkind: OperationSet\nmetadata: {name: s}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n")
	for i, o := range operations {
		to, before := "", make([]string, i)
		if i+1 < len(operations) {
			to = fmt.Sprintf(", to: [%d]", i+2)
		}
		for j := range before {
			before[j] = strconv.Itoa(j + 1)
		}
		fmt.Fprintf(&b, "  - {id: %d, operation: %s%s, dependences: [%s]}\n", i+1, o, to, strings.Join(before, ", "))
	}
	return b.String()
}

// op returns the YAML of an Operation.
func op(name, spec string) string {
	return "---\napiVersion: kernosis.io/v1alpha1\nkind: Operation\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// diagnosis returns a tenant's Diagnosis of its own pod.
func diagnosis(parameters map[string]string) *v1alpha1.Diagnosis {
	d := &v1alpha1.Diagnosis{}
	d.Namespace, d.Name = "shop", "why"
	d.Spec.OperationSet = "s"
	d.Spec.PodReference = &v1alpha1.PodReference{Name: "web-0"}
	d.Spec.Parameters = parameters
	return d
}
