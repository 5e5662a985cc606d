package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

func (a *Actions) checkDrain(ctx context.Context, c *Call) error {
	if err := a.checkNode(ctx, c); err != nil {
		return err
	}
	_, err := a.podsToEnd(ctx, c, "")
	return err
}

// fromCache lets the API server answer a list from its cache, which may be stale. Servers before
// 1.31 read every pod of the cluster from etcd for any other list.
const fromCache = "0"

// evictTimeout bounds one eviction of a drain, which a webhook may delay.
const evictTimeout = 5 * time.Second

// drain cordons the node, requests the eviction of each pod once, and checks what is left. It never
// evicts a pod by name alone: while a drain waits, an evicted pod may already run on another node
// under the same name.
func (a *Actions) drain(ctx context.Context, c *Call) (Progress, error) {
	if c.Before != nil && c.Before.Message != "" {
		// An earlier pass cordoned the node. If somebody has uncordoned it since, its pods should
		// stay.
		n, err := a.get(ctx, c)
		if err != nil {
			return Progress{}, err
		}
		if !n.Spec.Unschedulable {
			return Progress{}, refuse("node %s was uncordoned while it was being drained: the drain was stopped; %s", n.Name, c.Before.Message)
		}
	} else if _, err := a.perform(ctx, c, policy.Act{}, "", ""); err != nil {
		return Progress{}, err
	}
	var left *pods
	var err error
	if c.Before != nil && c.Before.Message != "" {
		if left, err = a.podsToEnd(ctx, c, fromCache); err != nil {
			return Progress{}, err
		}
	}
	if left == nil || len(left.end) == 0 {
		// The first list decides whether any pod is evicted, and the last whether none is left;
		// both must be current, because pods may have come since and a cache may be stale.
		if left, err = a.podsToEnd(ctx, c, ""); err != nil {
			return Progress{}, err
		}
	}
	evicted := 0
	if c.Before != nil {
		evicted, _ = strconv.Atoi(c.Before.Values["evicted"]) // our own; none yet: 0
	}
	var waits []string
	var failed error
	first := rand.N(max(len(left.end), 1)) // so that evictions that hang don't always delay the same pods
	for i := range left.end {
		p := &left.end[(first+i)%len(left.end)]
		name := p.Namespace + "/" + p.Name
		if p.DeletionTimestamp != nil {
			waits = append(waits, name+" is terminating")
			continue
		}
		each, cancel := context.WithTimeout(ctx, evictTimeout)
		gone, blocked, err := a.end(each, c, p)
		cancel()
		switch {
		case err != nil:
			failed = err // continue with the others
			waits = append(waits, err.Error())
		case blocked != "":
			waits = append(waits, name+": "+blocked)
		case gone:
		default:
			evicted++
			waits = append(waits, name+" is terminating")
		}
	}
	values := map[string]string{"evicted": strconv.Itoa(evicted), "stayed": left.stayed()}
	if len(waits) == 0 {
		return Progress{State: v1alpha1.ResultSucceeded, Message: fmt.Sprintf("node %s is cordoned and drained; left in place: %s", c.node(), left.stayed()), Values: values}, nil
	}
	slices.Sort(waits)
	message := fmt.Sprintf("%d pod(s) left on node %s: %s", len(waits), c.node(), display.List(waits, maxNames))
	if _, refused := errors.AsType[*Refused](failed); refused {
		return Progress{State: v1alpha1.ResultFailed, Message: message, Values: values}, nil
	}
	return a.later(c, message, values), nil
}

// pods are the pods of a node, by what a drain does with them.
type pods struct {
	end                      []corev1.Pod
	daemonSets, static, ours int
}

func (p *pods) stayed() string {
	return fmt.Sprintf("%d of DaemonSets, %d static, %d of Kernosis", p.daemonSets, p.static, p.ours)
}

// podsToEnd lists the node's pods. It refuses if a pod must not be evicted but may not stay either.
// The rules are those of kubectl drain, except for pods of Kernosis, other pods in its namespace,
// and pods of a deleted DaemonSet, which are left to the garbage collector.
//
// docs/adr/0013-own-drain.md has why k8s.io/kubectl/pkg/drain is not used. version is the
// resourceVersion to list at: empty, or [fromCache].
func (a *Actions) podsToEnd(ctx context.Context, c *Call, version string) (*pods, error) {
	out := &pods{}
	var daemonSets, emptyDirs, bare, neighbours []string
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", c.node()).String(), Limit: 500, ResourceVersion: version}
	for {
		page, err := a.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			if definite(err) {
				return nil, refuse("pods of node %s: %s", c.node(), err)
			}
			return nil, fmt.Errorf("pods of node %s: %w", c.node(), err)
		}
		for i := range page.Items {
			p := &page.Items[i]
			name := p.Namespace + "/" + p.Name
			owner := metav1.GetControllerOf(p)
			over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			switch {
			case mirror(p):
				out.static++
				continue
			case a.own(p):
				out.ours++
				continue
			case over && a.neighbour(p): // it may stay
				continue
			case over: // nothing is lost with it
			case owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
				out.daemonSets++
				daemonSets = append(daemonSets, name)
				continue
			case a.neighbour(p):
				neighbours = append(neighbours, name)
			case hasEmptyDir(p) && !c.Values.Bool("deleteEmptyDirData"):
				emptyDirs = append(emptyDirs, name)
			case owner == nil && !c.Values.Bool("force"):
				bare = append(bare, name)
			}
			out.end = append(out.end, *p)
		}
		if options.Continue, options.ResourceVersion = page.Continue, ""; options.Continue == "" {
			break
		}
	}
	var wrong []string
	if !c.Values.Bool("ignoreDaemonSets") && len(daemonSets) > 0 {
		wrong = append(wrong, "of DaemonSets, and ignoreDaemonSets is false: "+display.List(daemonSets, maxNames))
	}
	if len(emptyDirs) > 0 {
		wrong = append(wrong, "with an emptyDir, whose data would be lost (set deleteEmptyDirData): "+display.List(emptyDirs, maxNames))
	}
	if len(bare) > 0 {
		wrong = append(wrong, "that nothing would recreate (set force): "+display.List(bare, maxNames))
	}
	if len(neighbours) > 0 {
		wrong = append(wrong, neighbourhood+": "+display.List(neighbours, maxNames))
	}
	if len(wrong) > 0 {
		return nil, refuse("node %s has pods %s", c.node(), strings.Join(wrong, "; and pods "))
	}
	slices.SortFunc(out.end, func(x, y corev1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return out, nil
}

func hasEmptyDir(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

// maxNames bounds how many names a message lists.
const maxNames = 5
