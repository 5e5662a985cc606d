package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

func plan() *policy.Plan {
	return &policy.Plan{Diagnosis: "5f3c", Node: "n7", Steps: []policy.Step{
		{
			ID: 4, Operation: "cordon", Spec: v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "cordon", Parameters: map[string]string{"a": "b"}}}},
			Parameters: map[string]string{"device": "nvme0n1", "reason": "DiskStalled"}, Results: map[string]string{"holderPID": "811"},
		},
		{
			ID: 5, Operation: "clean", Spec: v1alpha1.OperationSpec{Processor: v1alpha1.Processor{ScriptRunner: &v1alpha1.ScriptRunner{Script: "true", ArgKeys: []string{"x"}}}, Dependences: []string{"d"}},
			Parameters: map[string]string{"device": "nvme0n1"}, Results: map[string]string{},
		},
	}}
}

func digest(t *testing.T, p *policy.Plan) v1alpha1.Digest {
	t.Helper()
	d, err := p.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Existing approvals stay valid across releases, unless digestForm changes.
func TestDigestStaysWhatItIs(t *testing.T) {
	if d := digest(t, plan()); d != "ed20b1bf7ef35b333e04fbc9bcb864a2172aa23662d1b7b958c2961b3797fae9" {
		t.Errorf("digest %s", d)
	}
	if d := digest(t, every()); d != "e715e1f5bb79c190508ae15a29791a80b63ba23c47852c5a3e64ed7a26f565f7" {
		t.Errorf("digest of all fields: %s", d)
	}
	empty := plan()
	empty.Steps[1].Results = nil
	if digest(t, empty) != digest(t, plan()) {
		t.Error("no results and an empty map of them differ")
	}
}

// every returns a plan with all fields that an Operation can have, even mutually exclusive ones.
func every() *policy.Plan {
	return &policy.Plan{Diagnosis: "5f3c", Node: "n7", Steps: []policy.Step{{ID: 1, Operation: "every", Spec: v1alpha1.OperationSpec{
		Processor: v1alpha1.Processor{
			Builtin: &v1alpha1.Builtin{Name: "cordon", Parameters: map[string]string{"b": "<2>", "a": "1"}},
			HTTPServer: &v1alpha1.HTTPServer{
				Address: "a.svc", Port: 8443, Path: "/p?a&b", Scheme: "https", CABundle: []byte("-----BEGIN"), ServerName: "b.svc",
				ClientCertificateSecret: &v1alpha1.SecretReference{Name: "s"},
			},
			ScriptRunner:   &v1alpha1.ScriptRunner{Script: "echo \"$1\" > /x\n", ArgKeys: []string{"z", "y"}, OperationResultKey: "k"},
			TimeoutSeconds: 90,
		},
		Effect: v1alpha1.EffectRemediate, TenantSafe: true,
		Retry:       &v1alpha1.Retry{Limit: 3, Backoff: metav1.Duration{Duration: 1500 * time.Millisecond}, MaxBackoff: metav1.Duration{Duration: time.Minute}},
		Dependences: []string{"d2", "d1"},
		Storage:     &v1alpha1.Storage{HostPath: &v1alpha1.HostPath{Path: "kept"}},
	}}}}
}

// Each value in the plan, however deep, and each entry of its maps and lists, is changed once: all
// digests differ.
func TestEveryChangeChangesTheDigest(t *testing.T) {
	seen := map[v1alpha1.Digest]string{}
	for _, of := range []func() *policy.Plan{plan, every} {
		seen[digest(t, of())] = "none"
		for i := range places(reflect.ValueOf(of()).Elem(), -1) {
			p := of()
			places(reflect.ValueOf(p).Elem(), i)
			d := digest(t, p)
			if other, ok := seen[d]; ok {
				t.Errorf("change %d: digest of %s\n%+v", i, other, p)
			}
			seen[d] = fmt.Sprint("change ", i)
		}
	}
	t.Logf("%d changes", len(seen)-2)
	if len(seen) < 70 {
		t.Error("too few changes: a part is left out")
	}
}

// places counts the possible changes within a value, and makes the one with the given number.
func places(v reflect.Value, change int) int {
	n := 0
	at := func(f func()) {
		if n == change {
			f()
		}
		n++
	}
	switch v.Kind() {
	case reflect.String:
		at(func() { v.SetString(v.String() + "x") })
	case reflect.Bool:
		at(func() { v.SetBool(!v.Bool()) })
	case reflect.Int, reflect.Int32, reflect.Int64:
		at(func() { v.SetInt(v.Int() + 1) })
	case reflect.Pointer:
		if !v.IsNil() {
			n += places(v.Elem(), change-n)
		} else if v.Type().Elem().Kind() == reflect.Struct {
			at(func() {
				v.Set(reflect.New(v.Type().Elem()))
			})
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			n += places(field, change-n)
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += places(v.Index(i), change-n)
		}
		if v.Len() > 0 {
			at(func() { v.Set(reflect.Append(v, v.Index(0))) })
			at(func() { v.SetLen(v.Len() - 1) })
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			at(func() { v.SetMapIndex(k, reflect.ValueOf("other")) })
			at(func() { v.SetMapIndex(k, reflect.Value{}) })
		}
	}
	return n
}

// Random maps: digests are equal if and only if the maps are, however they were filled; and texts
// can't run into each other, whatever bytes they contain.
func TestDigestOfRandomValues(t *testing.T) {
	seen := make(map[v1alpha1.Digest]map[string]string)
	for range 20000 {
		values := make(map[string]string)
		for range rand.N(4) {
			values[letters()] = letters()
		}
		p := plan()
		p.Steps = p.Steps[:1]
		p.Steps[0].Parameters = values
		d := digest(t, p)
		if other, ok := seen[d]; ok && !reflect.DeepEqual(other, values) {
			t.Fatalf("%q and %q", other, values)
		}
		seen[d] = values
		p.Steps[0].Parameters = maps.Clone(values)
		if digest(t, p) != d {
			t.Fatalf("%q has two", values)
		}
		p.Steps[0].Results, p.Steps[0].Parameters = values, p.Steps[0].Results
		if len(values) > 0 && digest(t, p) == d {
			t.Fatalf("%q as results", values)
		}
	}
}

func letters() string {
	b := make([]byte, rand.N(4))
	for i := range b {
		b[i] = "a\x00\xff\"="[rand.N(5)]
	}
	return string(b)
}
