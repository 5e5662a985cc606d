// Package clustertest_test runs the agent as a process against a real API server and real
// faults, from the fault to the Diagnosis. It is separate from the command's own tests
// because these already take long.
package clustertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // the controller works on all nodes

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) || agenttest.RunProber(os.Args) {
		return
	}
	os.Exit(cluster.Run(m))
}

// agent is an agent of a Node, with a system namespace of its own.
type agent struct {
	*agenttest.Agent

	t               testing.TB
	people          client.Client // may do everything
	path            string        // path of the program
	kubeconfig      string
	node, namespace string
}

func newAgent(t testing.TB, server *kubetest.Server) *agent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	path := agenttest.Program(t)
	server.CRDs(t)
	testenv.HoldKernel(t)
	people := apitest.Client(t, server.Admin())
	a := &agent{t: t, people: people, path: path, node: server.Node(t), namespace: server.Namespace(t)}
	a.kubeconfig = server.Kubeconfig(t, withRights(t, server, a.namespace))
	a.Agent = a.another()
	return a
}

// another returns another agent of the Node, with folders of its own.
func (a *agent) another() *agenttest.Agent {
	a.t.Helper()
	other := agenttest.New(a.t, a.path, "--kubeconfig", a.kubeconfig, "--node-name", a.node, "--namespace", a.namespace,
		"--port", "0", "--prometheus-port", "0", "--report-socket", "", "--listen", "127.0.0.1:0")
	other.Command = "agent"
	a.t.Cleanup(func() {
		if text := other.Log.String(); lacksRight(text) {
			a.t.Errorf("the documented rights are not enough:\n%s", text)
		}
	})
	return other
}

// lacksRight reports whether the log of an agent shows a permanently missing right. An API server
// that has just started refuses requests until it has read the roles, so refused conditions that
// were written afterwards don't count.
func lacksRight(log string) bool {
	if i := max(strings.LastIndex(log, "conditions are written again"), strings.LastIndex(log, "the node has all conditions")); i >= 0 {
		log = refusedConditions.ReplaceAllString(log[:i], "") + log[i:]
	}
	return strings.Contains(log, "outcome=forbidden") || strings.Contains(log, "permission is missing")
}

var refusedConditions = regexp.MustCompile(`(?m)^.*msg="can't write the conditions".*outcome=forbidden.*$`)

func TestLacksRight(t *testing.T) {
	refused := `level=WARN msg="can't write the conditions" node=a outcome=forbidden error="no"` + "\n"
	again := `level=INFO msg="conditions are written again" node=a` + "\n"
	all := `level=INFO msg="the node has all conditions" node=a` + "\n"
	for log, want := range map[string]bool{
		refused: true, refused + again: false, refused + all: false, again + refused: true, again: false,
		`level=WARN msg="lease not renewed" outcome=forbidden` + "\n" + again: true,
	} {
		if got := lacksRight(log); got != want {
			t.Errorf("%v for\n%s", got, log)
		}
	}
}

// apply creates objects, unless they already exist.
func (a *agent) apply(objects ...client.Object) {
	a.t.Helper()
	for _, o := range objects {
		if err := a.people.Create(a.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			a.t.Fatal(err)
		}
	}
}

// shipped applies the manifests of a shipped set.
func (a *agent) shipped(name string) {
	a.t.Helper()
	all, err := manifest.Shipped(name)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, o := range all.Objects() {
		a.apply(o)
	}
}

// knows waits until the agent's file of known objects has a Trigger.
func (a *agent) knows(trigger string) {
	a.t.Helper()
	a.await("trigger "+trigger, time.Minute, func(context.Context) (bool, string, error) {
		text, err := os.ReadFile(filepath.Join(a.State, "diagnose", "objects.json"))
		if err != nil {
			return false, "", err
		}
		var known struct {
			Triggers []v1alpha1.Trigger `json:"triggers"`
		}
		err = json.Unmarshal(text, &known)
		has := slices.ContainsFunc(known.Triggers, func(t v1alpha1.Trigger) bool { return t.Name == trigger })
		return has, fmt.Sprintf("%d triggers", len(known.Triggers)), err
	})
}

// await waits until something holds; on a timeout the test fails with what was last seen.
func (a *agent) await(what string, within time.Duration, ok func(ctx context.Context) (bool, string, error)) {
	a.t.Helper()
	within = testenv.Within(within)
	ctx, cancel := context.WithTimeout(a.t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := "nothing"
	for {
		is, shown, err := ok(ctx)
		if is {
			return
		}
		if err == nil {
			last = shown
		} else if ctx.Err() == nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			a.t.Fatalf("no %s within %v; last: %s", what, within, last)
		case <-tick.C:
		}
	}
}

// diagnoses returns the Diagnoses of the system namespace for which of returns true.
func (a *agent) diagnoses(ctx context.Context, of func(*v1alpha1.Diagnosis) bool) ([]v1alpha1.Diagnosis, error) {
	var list v1alpha1.DiagnosisList
	if err := a.people.List(ctx, &list, client.InNamespace(a.namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d v1alpha1.Diagnosis) bool { return !of(&d) }), nil
}

// awaitEnd waits until there is one Diagnosis for which of returns true, and it has ended.
func (a *agent) awaitEnd(within time.Duration, of func(*v1alpha1.Diagnosis) bool) *v1alpha1.Diagnosis {
	a.t.Helper()
	var list []v1alpha1.Diagnosis
	a.await("end of the diagnosis", within, func(ctx context.Context) (bool, string, error) {
		var err error
		list, err = a.diagnoses(ctx, of)
		if len(list) > 1 {
			a.t.Fatalf("%d Diagnoses: %s", len(list), summary(list))
		}
		return len(list) == 1 && complete(&list[0]), summary(list), err
	})
	return &list[0]
}

func named(name string) func(*v1alpha1.Diagnosis) bool {
	return func(d *v1alpha1.Diagnosis) bool { return d.Name == name }
}

func complete(d *v1alpha1.Diagnosis) bool {
	return apimeta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionComplete)
}

// summary returns the text that a failure shows.
func summary(list []v1alpha1.Diagnosis) string {
	var b strings.Builder
	for i := range list {
		text, err := json.Marshal(&list[i].Status)
		fmt.Fprintf(&b, "%s: %s %v\n", list[i].Name, text, err)
	}
	return b.String()
}
