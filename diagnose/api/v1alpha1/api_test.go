package v1alpha1_test

import (
	"context"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// newClient returns a client of a server with the CRDs, which refuses unknown fields like kubectl
// does, and a new namespace.
func newClient(t *testing.T) (client.WithWatch, string) {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	c := apitest.Client(t, server.Admin())
	return c, server.Namespace(t)
}

func create(ctx context.Context, t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	if err := c.Create(ctx, obj); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(ctx), obj); err != nil {
			t.Error(err)
		}
	})
}
