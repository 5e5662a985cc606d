package install

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestKinds(t *testing.T) {
	b := newBench(t)
	all, err := dynamic.NewForConfig(b.server.Admin())
	b.must(err)
	applier, deleter := b.user("apply-"+b.namespace, "kernosis-crds-apply"), b.user("delete-"+b.namespace, "kernosis-crds-delete")
	own, err := kinds()
	b.must(err)
	if len(own) != 5 || own[0].definition.GetName() != "diagnoses.kernosis.io" {
		t.Fatalf("%d kinds, first %q", len(own), own[0].definition.GetName())
	}
	b.must(ApplyKinds(within(t, time.Minute), applier, b.say))
	b.says("diagnoses.kernosis.io is applied and established", "triggers.kernosis.io is applied")

	// Objects can be written immediately.
	sets := all.Resource(schema.GroupVersionResource{Group: "kernosis.io", Version: "v1alpha1", Resource: "operationsets"})
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kernosis.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	set := object("OperationSet", "s", map[string]any{"adjacencyList": []any{
		map[string]any{"id": int64(0), "to": []any{int64(1)}}, map[string]any{"id": int64(1), "operation": "load"},
	}})
	_, err = sets.Create(t.Context(), set, metav1.CreateOptions{})
	b.must(err)
	diagnoses := all.Resource(schema.GroupVersionResource{Group: "kernosis.io", Version: "v1alpha1", Resource: "diagnoses"}).Namespace(b.namespace)
	for name, finalizer := range map[string][]any{"ours": {"kernosis.io/held"}, "others": {"kernosis.io/held", "backup.example.com/copy"}} {
		d := object("Diagnosis", name, map[string]any{"operationSet": "s", "nodeName": "n"})
		d.Object["metadata"].(map[string]any)["finalizers"] = finalizer
		_, err = diagnoses.Create(t.Context(), d, metav1.CreateOptions{})
		b.must(err)
	}

	// Replaces another version of a CRD, which another field manager has applied.
	definitions, _, err := definitions(b.server.Admin())
	b.must(err)
	_, err = definitions.Patch(t.Context(), "triggers.kernosis.io", types.MergePatchType, []byte(`{"spec":{"names":{"shortNames":["old"]}}}`), metav1.PatchOptions{FieldManager: "helm"})
	b.must(err)
	before, err := definitions.Get(t.Context(), "operationsets.kernosis.io", metav1.GetOptions{})
	b.must(err)
	b.must(ApplyKinds(within(t, time.Minute), applier, b.say))
	after, err := definitions.Get(t.Context(), "operationsets.kernosis.io", metav1.GetOptions{})
	b.must(err)
	if after.GetGeneration() != before.GetGeneration() {
		t.Error("an up-to-date CRD was changed")
	}
	if _, err := sets.Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
		t.Errorf("an object is gone: %v", err)
	}

	// Objects held by others are named; those held by nobody are deleted.
	b.said()
	soon, enough := context.WithCancel(within(t, 2*time.Minute))
	defer enough()
	reported, report := context.WithCancel(soon)
	defer report()
	ended := make(chan error, 1)
	go func() {
		ended <- DeleteKinds(soon, deleter, func(line string) {
			if strings.Contains(line, "other finalizers") {
				report() // the user learns at once what holds them
			}
		})
	}()
	if <-reported.Done(); soon.Err() != nil {
		t.Error("what holds the objects was not reported")
	}
	// The API server deletes objects one after the other.
	testenv.Until(t, "ours is gone", time.Minute, func() bool {
		_, err := diagnoses.Get(t.Context(), "ours", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	enough()
	err = <-ended
	if err == nil || !strings.Contains(err.Error(), "diagnoses.kernosis.io: timed out: held by other finalizers: "+b.namespace+"/others (backup.example.com/copy)") {
		t.Errorf("got %v", err)
	}
	left, err := diagnoses.List(t.Context(), metav1.ListOptions{})
	b.must(err)
	if len(left.Items) != 1 || len(left.Items[0].GetFinalizers()) != 1 {
		t.Errorf("left is %v", left.Items)
	}
	_, err = diagnoses.Patch(t.Context(), "others", types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{})
	b.must(err)
	b.said()
	b.must(DeleteKinds(within(t, 2*time.Minute), deleter, b.say))
	b.must(DeleteKinds(within(t, time.Minute), deleter, b.say))
	b.says("triggers.kernosis.io was not found")
	for _, k := range own {
		if _, err := definitions.Get(t.Context(), k.definition.GetName(), metav1.GetOptions{}); err == nil {
			t.Errorf("%s is still there", k.definition.GetName())
		}
	}

	// Apply and delete again, with uninstall.
	b.must(ApplyKinds(within(t, time.Minute), applier, b.say))
	c := b.config()
	c.To, c.Kinds = b.user("all-"+b.namespace, "kernosis-uninstall", "kernosis-crds-delete"), true
	b.said()
	b.must(Uninstall(within(t, 2*time.Minute), c))
	b.says("DaemonSet kernosis-agent was not found", "diagnoses.kernosis.io is deleted, with all its objects")
}

// CRDs without any objects: the API server's first attempt to list them fails, and it would retry
// only after five minutes.
func TestKindsNeverUsed(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	applier, deleter := b.user("apply-"+b.namespace, "kernosis-crds-apply"), b.user("delete-"+b.namespace, "kernosis-crds-delete")
	for range 5 {
		b.must(ApplyKinds(within(t, time.Minute), applier, b.say))
		b.must(DeleteKinds(within(t, time.Minute), deleter, b.say))
	}
}

// ApplyKinds returns the error of the connection, not what it would wait for after a request.
func TestKindsOfAServerThatIsAway(t *testing.T) {
	err := ApplyKinds(within(t, 2*time.Second), &rest.Config{Host: "https://127.0.0.1:1"}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "timed out: ") || !strings.Contains(err.Error(), "127.0.0.1:1: connect: connection refused") ||
		strings.Contains(err.Error(), "being deleted") {
		t.Error(err)
	}
}

// If a server accepts connections but does not respond, the error says nothing about the CRDs.
func TestKindsOfAServerThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = ApplyKinds(within(t, 100*time.Millisecond), &rest.Config{Host: "http://" + l.Addr().String()}, func(string) {})
	if want := "diagnoses.kernosis.io: timed out: the API server does not respond"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A timeout does not hide the error before it.
func TestRetryKeepsWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		err := retry(ctx, func(ctx context.Context) error {
			if calls++; calls == 1 {
				return errors.New("connection refused")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if calls != 2 || err == nil || err.Error() != "timed out: connection refused" {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
}
