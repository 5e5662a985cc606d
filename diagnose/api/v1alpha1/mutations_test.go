package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// mutations is how many changed manifests are tried, out of some 5,300. Trying all took half a
// minute, and server and package agreed on all.
const mutations = 1000

// The server and package manifest agree on generated manifests: valid ones with one value changed.
func TestManifestAgreesWithTheServer(t *testing.T) {
	testenv.OnlyInTestAll(t)
	c, namespace := newClient(t)
	reader, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for _, test := range apitest.Cases(t) {
		if !test.Accepted() || len(test.Text) > 2000 {
			continue
		}
		var object map[string]any
		if err := yaml.Unmarshal([]byte(test.Text), &object); err != nil {
			t.Fatal(err)
		}
		spec, _ := object["spec"].(map[string]any)
		for _, changed := range changedAnywhere(spec) {
			object := maps.Clone(object)
			object["spec"] = changed
			all = append(all, object)
		}
	}
	if len(all) < mutations {
		t.Fatalf("%d mutations", len(all))
	}
	random := rand.New(rand.NewPCG(1, 1)) // the same each time
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	accepted := 0
	for _, object := range all[:mutations] {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		set, ours := reader.Parse(document.File{Name: "f.json", Data: text})
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &obj.Object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] == v1alpha1.KindDiagnosis {
			obj.SetNamespace(namespace)
		}
		theirs := c.Create(t.Context(), obj, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if ours != nil && strings.Contains(ours.Error(), "caBundle: want text, have a list") {
			continue // the server accepts a list for bytes, which no client can read afterwards
		}
		if (ours == nil) != (theirs == nil) {
			t.Errorf("%s\nmanifest: %v\nserver: %v", text, ours, theirs)
			continue
		}
		if ours != nil {
			continue
		}
		accepted++
		stored := reflect.New(reflect.TypeOf(set.Objects()[0]).Elem()).Interface().(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, stored); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(spec(set.Objects()[0]).Interface(), spec(stored).Interface(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s\nthe server's is + : %s", text, diff)
		}
	}
	t.Logf("%d of %d accepted", accepted, mutations)
	if accepted < mutations/20 || accepted > mutations*19/20 {
		t.Errorf("%d of %d accepted: the changes tell little", accepted, mutations)
	}
}

// changedAnywhere returns copies of a value, each with one change at any depth.
func changedAnywhere(v any) []any {
	out := []any{nil, "", "x", strings.Repeat("a", 5000), "10s", "-1h", true, int64(-1), int64(0), int64(1), int64(1) << 40, 1.5, []any{}, []any{"x"}, map[string]any{}, map[string]any{"x": "y"}}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fewer := maps.Clone(v)
			delete(fewer, k)
			out = append(out, fewer)
			more := maps.Clone(v)
			more[k+"x"] = v[k]
			out = append(out, more)
			for _, changed := range changedAnywhere(v[k]) {
				other := maps.Clone(v)
				other[k] = changed
				out = append(out, other)
			}
		}
	case []any:
		for i := range v {
			out = append(out, append(slices.Clone(v), v[i]), slices.Delete(slices.Clone(v), i, i+1))
			for _, changed := range changedAnywhere(v[i]) {
				other := slices.Clone(v)
				other[i] = changed
				out = append(out, other)
			}
		}
	case string:
		out = append(out, v+" ", strings.ToUpper(v), fmt.Sprint(v, ".", v))
	}
	return out
}
