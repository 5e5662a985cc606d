package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// partingLook bounds the requests to the API server that an agent makes at its end.
const partingLook = 3 * time.Second

// keepsAttached reports, at the agent's end, whether its programs stay attached for the next agent,
// which then reads what happened in between. In a pod of a DaemonSet they stay if the DaemonSet still
// exists and selects this node. They also stay if that can't be found out, for example because the
// API server is unreachable: an upgrade is more likely than a removal. A missing service account or
// missing rights mean a removal: Helm deletes them at once, and the pods end later.
func (c *Config) keepsAttached(log *slog.Logger) bool {
	if !c.KeepAttached || c.cluster == nil || c.Kube.DaemonSet == "" {
		return c.KeepAttached
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), partingLook, errors.New("no answer"))
	defer cancel()
	namespace := c.Kube.namespace()
	going, err := isGoing(ctx, c, namespace)
	switch {
	case err != nil:
		log.Warn("programs stay attached: can't determine whether another agent will start", "daemonset", namespace+"/"+c.Kube.DaemonSet, "error", err)
	case going:
		log.Info("programs are detached: the DaemonSet, or the permission to read it, is gone, or it no longer selects the node", "daemonset", namespace+"/"+c.Kube.DaemonSet)
	}
	return !going
}

func isGoing(ctx context.Context, c *Config, namespace string) (bool, error) {
	d, err := c.cluster.unlimited.AppsV1().DaemonSets(namespace).Get(ctx, c.Kube.DaemonSet, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return true, nil
	}
	if err != nil || d.DeletionTimestamp != nil {
		return err == nil, err
	}
	n, err := c.cluster.unlimited.CoreV1().Nodes().Get(ctx, c.cluster.node, metav1.GetOptions{})
	return err == nil && !liveness.Wants(d, n), err
}
