package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// Default names of an installation.
const (
	DefaultNamespace  = "kernosis"
	DefaultDaemonSet  = "kernosis-agent"
	DefaultDeployment = "kernosis-controller"
)

// uninstaller is the field manager of Uninstall's writes.
const uninstaller = "kernosis-uninstall"

// workers is how many Nodes are written in parallel: with some milliseconds per write, as many as
// the client's rate limit allows.
const workers = 16

// passes is how often all Nodes are processed: the second pass handles writes that were still in
// flight during the first.
const passes = 3

// Config configures Uninstall.
type Config struct {
	// To is the API server; its QPS and Burst bound the requests.
	To         *rest.Config
	Namespace  string // of agents and controller
	DaemonSet  string
	Deployment string
	Kinds      bool         // also delete the CRDs, and thereby all their objects
	Say        func(string) // called with a line for each step, possibly by several goroutines
}

// Uninstall stops agents and controller and then removes what they have written.
//
// It removes nothing while one of their pods runs on a ready Node, because that pod would write
// everything again. Nor does it if agents seem to run in another namespace. It reports pods on Nodes
// that are not ready but does not wait for them. The error names each Node that could not be written,
// with the reason; its Lease stays, so that another Uninstall finds it. Only ctx limits how long
// Uninstall takes.
func Uninstall(ctx context.Context, c Config) error {
	client, err := kubernetes.NewForConfig(c.To)
	if err != nil {
		return err
	}
	say, lock := c.Say, &sync.Mutex{}
	c.Say = func(line string) {
		lock.Lock()
		defer lock.Unlock()
		say(line)
	}
	u := &uninstall{Config: c, client: client, nodes: map[string]bool{}, removed: map[string]bool{}, foreign: map[string]int{}}
	agents := &workload[*appsv1.DaemonSet]{
		kind: "DaemonSet", name: u.DaemonSet, api: client.AppsV1().DaemonSets(u.Namespace),
		selector: func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector }, pods: liveness.DefaultPods,
	}
	controller := &workload[*appsv1.Deployment]{
		kind: "Deployment", name: u.Deployment, api: client.AppsV1().Deployments(u.Namespace),
		selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }, pods: controllerPods,
	}
	// Agents first: if they can't be stopped, the controller must stay to act for silent ones.
	hasAgents, err := agents.stop(ctx, u)
	if err != nil {
		return err
	}
	hasController, err := controller.stop(ctx, u)
	if err != nil {
		return err
	}
	if !hasAgents && !hasController {
		if err := u.checkNamespace(ctx); err != nil {
			return err
		}
	}
	err = u.clean(ctx)
	err = errors.Join(err, u.forget(ctx))
	if c.Kinds {
		err = errors.Join(err, DeleteKinds(ctx, c.To, c.Say))
	}
	return err
}

// uninstall is the state of one Uninstall.
type uninstall struct {
	Config

	client kubernetes.Interface

	mu      sync.Mutex
	nodes   map[string]bool // Nodes from which conditions were removed
	removed map[string]bool // condition types
	foreign map[string]int  // number of such conditions written by others, by "Type (manager)"
}

// clean removes conditions and changes from Nodes, and then the Leases of these Nodes.
func (u *uninstall) clean(ctx context.Context) error {
	for pass := range passes {
		known, err := u.leases(ctx)
		if err != nil {
			return err
		}
		todo, nodes, err := u.look(ctx, known)
		if err != nil {
			return err
		}
		// Leases of deleted Nodes, or without a Node.
		strays := slices.DeleteFunc(slices.Clone(known), func(l leaseOf) bool { return nodes[l.node] })
		if pass == passes-1 && len(todo) > 0 {
			return reappeared(todo)
		}
		if len(todo)+len(strays) == 0 {
			break
		}
		if err := u.writeAll(ctx, todo, strays); err != nil {
			u.report()
			return err
		}
	}
	u.report()
	return nil
}

// reappeared returns an error that lists what was written again, and on which Nodes.
func reappeared(todo []task) error {
	var what, names []string
	for _, kind := range []struct {
		name string
		has  func(task) bool
	}{
		{"conditions", func(t task) bool { return len(t.types) > 0 }},
		{"repairs", func(t task) bool { return t.acts }},
		{"leases", func(t task) bool { return t.lease != nil }},
	} {
		if slices.ContainsFunc(todo, kind.has) {
			what = append(what, kind.name)
		}
	}
	for i := range todo {
		names = append(names, todo[i].name)
	}
	return fmt.Errorf("%s reappear on %d nodes, so an agent or controller is still running somewhere: %s", strings.Join(what, ", "), len(todo), display.List(names, shown))
}

// report prints the conditions and changes that were removed from Nodes.
func (u *uninstall) report() {
	if len(u.removed) == 0 {
		u.Say("no conditions of Kernosis are left on nodes")
	} else {
		u.Say(fmt.Sprintf("conditions removed from %d nodes: %s", len(u.nodes), strings.Join(slices.Sorted(maps.Keys(u.removed)), ", ")))
	}
	for _, who := range slices.Sorted(maps.Keys(u.foreign)) {
		u.Say(fmt.Sprintf("condition %s stays on %d nodes: another client wrote it last", who, u.foreign[who]))
	}
}

// forget deletes the controller's own state.
func (u *uninstall) forget(ctx context.Context) error {
	var errs []error
	for _, o := range []struct {
		what   string
		delete func(context.Context) error
	}{
		{"ConfigMap " + start.StateName, func(ctx context.Context) error {
			return u.client.CoreV1().ConfigMaps(u.Namespace).Delete(ctx, start.StateName, metav1.DeleteOptions{})
		}},
		{"Lease " + leader.ElectionName, func(ctx context.Context) error {
			return u.client.CoordinationV1().Leases(u.Namespace).Delete(ctx, leader.ElectionName, metav1.DeleteOptions{})
		}},
	} {
		switch err := retry(ctx, o.delete); {
		case err == nil:
			u.Say(o.what + " is deleted")
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, fmt.Errorf("%s: %w", o.what, err))
		}
	}
	return errors.Join(errs...)
}

// freshFor is how long after a heartbeat an agent may still be running: two heartbeats.
const freshFor = 2 * conditions.DefaultHeartbeat

// checkNamespace returns an error if the namespace has no Lease of an agent, but an agent has
// written a Node's conditions lately: it probably runs in another namespace.
func (u *uninstall) checkNamespace(ctx context.Context) error {
	known, err := u.leases(ctx)
	if err != nil || len(known) > 0 {
		return err
	}
	var node string
	var latest time.Time
	err = u.eachNode(ctx, func(n *corev1.Node) {
		if at := lastHeartbeat(n); at.After(latest) && time.Since(at).Abs() < freshFor {
			node, latest = n.Name, at
		}
	})
	if err != nil || node == "" {
		return err
	}
	age := max(0, time.Since(latest))
	where := ""
	if others := u.namespacesOfAgents(ctx); len(others) > 0 {
		where = ": agents run in " + display.List(others, shown)
	}
	return fmt.Errorf("namespace %s has no agents or controller, but an agent updated the conditions of node %s %s ago: name the namespace of the installation with -n%s; if it is already removed, repeat this in %s",
		u.Namespace, node, age.Round(time.Second), where, (freshFor-age).Round(time.Second)+time.Second)
}

// namespacesOfAgents returns the namespaces with pods of agents, sorted, or none without the right to
// list pods of all namespaces.
func (u *uninstall) namespacesOfAgents(ctx context.Context) (out []string) {
	list, err := u.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: liveness.DefaultPods, Limit: pageSize})
	if err != nil {
		return nil // the error that the names are part of is useful without them
	}
	for i := range list.Items {
		out = append(out, list.Items[i].Namespace)
	}
	slices.SortFunc(out, strings.Compare)
	return slices.Compact(out)
}
