package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

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
