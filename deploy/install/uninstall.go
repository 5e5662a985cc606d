package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// Names that an installation has unless it is reported otherwise.
const (
	DefaultNamespace  = "kernosis"
	DefaultDaemonSet  = "kernosis-agent"
	DefaultDeployment = "kernosis-controller"
)

// uninstaller is how the API names the writer.
const uninstaller = "kernosis-uninstall"

// workers is how many Nodes are written at once: with some milliseconds a write, as many
// as the client's limit of requests lets through.
const workers = 16

// passes over all Nodes: the second one sees what was on its way during the first.
const passes = 3

// Config says what is to be taken out of which cluster.
type Config struct {
	// To is the API server; its QPS and Burst bound the requests.
	To         *rest.Config
	Namespace  string // of agents and controller
	DaemonSet  string
	Deployment string
	Kinds      bool         // delete the kinds, and with them all their objects
	Say        func(string) // called with a line for each step, possibly by several goroutines
}

// Uninstall stops agents and controller, and then takes back what they have written.
//
// Nothing is taken back while a pod of them runs on a Node that is ready: it would write
// it anew. A pod whose Node is silent is reported and not waited for. Nodes that can't be
// written are in the error, each with why; their Leases stay, so that another Uninstall
// knows of them. Bounded by ctx alone.
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
	// The controller first would leave nobody to speak for agents that can't be stopped.
	if err := agents.stop(ctx, u); err != nil {
		return err
	}
	if err := controller.stop(ctx, u); err != nil {
		return err
	}
	err = u.clean(ctx)
	err = errors.Join(err, u.forget(ctx))
	if c.Kinds {
		err = errors.Join(err, DeleteKinds(ctx, c.To, c.Say))
	}
	return err
}

// uninstall is one at work.
type uninstall struct {
	Config

	client kubernetes.Interface

	mu      sync.Mutex
	nodes   map[string]bool // conditions were removed from them
	removed map[string]bool // condition types
	foreign map[string]int  // conditions that others write, likewise: "Type (manager)"
}

// clean takes back what is on Nodes, and then the Leases that report it.
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
		// Leases of Nodes that are gone, or that are nobody's.
		strays := slices.DeleteFunc(slices.Clone(known), func(l leaseOf) bool { return nodes[l.node] })
		if pass == passes-1 && len(todo) > 0 {
			names := make([]string, len(todo))
			for i := range todo {
				names[i] = todo[i].name
			}
			return fmt.Errorf("conditions come back on %d nodes: an agent or a controller still runs somewhere: %s", len(todo), display.List(names, shown))
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

// report says what was taken back from Nodes.
func (u *uninstall) report() {
	if len(u.removed) == 0 {
		u.Say("no condition of Kernosis is left on a node")
	} else {
		u.Say(fmt.Sprintf("conditions removed from %d nodes: %s", len(u.nodes), strings.Join(slices.Sorted(maps.Keys(u.removed)), ", ")))
	}
	for _, who := range slices.Sorted(maps.Keys(u.foreign)) {
		u.Say(fmt.Sprintf("condition %s stays on %d nodes: it is not of Kernosis any more", who, u.foreign[who]))
	}
}

// forget deletes what the controller keeps for itself.
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
		case ignoreNotFound(err) != nil:
			errs = append(errs, fmt.Errorf("%s: %w", o.what, err))
		}
	}
	return errors.Join(errs...)
}
