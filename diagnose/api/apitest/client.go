package apitest

import (
	"errors"
	"testing"

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
