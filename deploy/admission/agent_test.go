package admission_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The agent's real writes pass the policies.
func TestTheAgentsOwnWritesPass(t *testing.T) {
	server := installedServer(t)
	node := server.Node(t)
	kube := kubetest.Clientset(t, boundConfig(t, server, node))
	patcher, err := conditions.New(conditions.Config{Client: kube, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := lease.New(lease.Config{
		Client: kube, Node: node, Namespace: system, Version: "v1", Interval: time.Second, Duration: 3 * time.Second, Types: patcher.Types,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- patcher.Run(ctx) }()
	go func() { ended <- keeper.Run(ctx) }()
	defer func() { cancel(); <-ended; <-ended }()
	admin := apitest.Client(t, server.Admin())
	status := func() (found corev1.ConditionStatus) {
		var n corev1.Node
		if err := admin.Get(t.Context(), client.ObjectKey{Name: node}, &n); err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "KernelDeadlock" {
				found = c.Status
			}
		}
		return found
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		testenv.UntilShown(t, what, 30*time.Second, func() (bool, string) {
			return ok(), fmt.Sprintf("conditions %+v, lease %+v", patcher.Stats(), keeper.Stats())
		})
	}
	for _, want := range []problem.Status{problem.True, problem.False} {
		list := []problem.Condition{{Type: "KernelDeadlock", Status: want, Reason: "R", Message: "m", LastTransition: time.Now()}}
		if err := patcher.Set(list); err != nil {
			t.Fatal(err)
		}
		until("condition "+string(want), func() bool { return string(status()) == string(want) })
	}
	if err := patcher.Set(nil); err != nil {
		t.Fatal(err)
	}
	until("no condition", func() bool { return status() == "" })
	if n := patcher.Stats().Writes[conditions.Refused]; n > 0 {
		t.Errorf("%d writes were refused", n)
	}
	until("the Lease is renewed", func() bool {
		var l coordinationv1.Lease
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: lease.Name(node)}, &l)
		return err == nil && l.Spec.RenewTime != nil && l.Spec.AcquireTime != nil && l.Spec.RenewTime.After(l.Spec.AcquireTime.Time)
	})
}
