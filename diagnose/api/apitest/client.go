package apitest

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Client returns a client for the kinds of Kubernetes and kernosis.io.
func Client(tb testing.TB, to *rest.Config) client.WithWatch {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	c, err := client.NewWithWatch(to, client.Options{Scheme: scheme})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// SetOf returns an OperationSet that runs operations one after the other.
func SetOf(name string, operations ...string) *v1alpha1.OperationSet {
	s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}}
	for i, o := range operations {
		n := v1alpha1.Node{ID: int32(i + 1), Operation: o}
		if i+1 < len(operations) {
			n.To = []int32{int32(i + 2)}
		}
		s.Spec.AdjacencyList = append(s.Spec.AdjacencyList, n)
	}
	return s
}
