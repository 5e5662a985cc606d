package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
)

// Config configures [Read].
type Config struct {
	REST    *rest.Config
	Subject why.Subject
	// Namespaces are further namespaces of agents and their Diagnoses, besides the subject's.
	Namespaces []string
	Now        time.Time
	Since      time.Duration
}

const (
	requestTimeout = 10 * time.Second
	// maxObjects bounds each list. The answer reports that more exist.
	maxObjects = 500
)

type reader struct {
	c    Config
	core kubernetes.Interface
	own  dynamic.Interface // for the kinds of kernosis.io, without their discovery
	in   why.Input
	// created is when the pod was created; zero: unknown, or of a static pod, which is older than its
	// object.
	created time.Time
}

// Read returns the answer's input from the API server. It returns an error if the subject does not
// exist, or if the API server does not answer.
func Read(ctx context.Context, c Config) (why.Input, error) {
	r := &reader{c: c, in: why.Input{Subject: c.Subject, Now: c.Now, Since: c.Since, Pods: map[string]string{}}}
	to := rest.CopyConfig(c.REST)
	to.Timeout = requestTimeout
	var err error
	if r.core, err = kubernetes.NewForConfig(to); err != nil {
		return r.in, fmt.Errorf("client: %w", err)
	}
	if r.own, err = dynamic.NewForConfig(to); err != nil {
		return r.in, fmt.Errorf("client: %w", err)
	}
	r.in.Read = []string{"API server " + to.Host}
	if c.Subject.Kind == why.KindNode {
		err = r.ofNode(ctx)
	} else {
		err = r.ofPod(ctx)
	}
	return r.in, err
}

func (r *reader) ofPod(ctx context.Context) error {
	s := &r.in.Subject
	pod, err := r.core.CoreV1().Pods(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		r.pod(pod)
	case apierrors.IsNotFound(err):
		// It may be gone and have left Events.
		r.lacks("pod "+s.String(), "no such pod", false)
	case !r.goesOn("pod "+s.String(), err, true):
		return err
	}
	missing := apierrors.IsNotFound(err)
	by := "involvedObject.kind=Pod,involvedObject.name=" + s.Name
	if s.UID != "" {
		// For a static pod, the Events of kubelet and ours have another UID than the object. The
		// name finds both, and also earlier pods with this name.
		by += ",involvedObject.namespace=" + s.Namespace
	}
	if err := r.events(ctx, s.Namespace, by, s.String()); err != nil {
		return err
	}
	if missing && len(r.in.Problems)+len(r.in.Events) == 0 {
		return fmt.Errorf("there is no pod %s, and no Event about it", s.String())
	}
	if s.Node != "" {
		if err := r.node(ctx, s.Node, false); err != nil {
			return err
		}
		r.lease(ctx, s.Node)
	}
	r.diagnoses(ctx, s.Node)
	return nil
}

func (r *reader) ofNode(ctx context.Context) error {
	name := r.in.Subject.Name
	if err := r.node(ctx, name, true); err != nil {
		return err
	}
	r.lease(ctx, name)
	// Our Events are in the same namespace as kubelet's, unless another is configured.
	if err := r.events(ctx, metav1.NamespaceAll, "involvedObject.kind=Node,involvedObject.name="+name, "node "+name); err != nil {
		return err
	}
	r.diagnoses(ctx, name)
	r.podNames(ctx, name)
	return nil
}

// podNames reads the names of a node's pods, to replace the UIDs in texts. If that fails, the UIDs
// stay.
func (r *reader) podNames(ctx context.Context, node string) {
	list, err := r.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, page("spec.nodeName="+node))
	if err != nil {
		return
	}
	for i := range list.Items {
		p := &list.Items[i]
		r.in.Pods[string(p.UID)] = p.Namespace + "/" + p.Name
		if hash := pods.Hash(&p.ObjectMeta); hash != "" {
			r.in.Pods[hash] = p.Namespace + "/" + p.Name
		}
	}
}

// lacks records what could not be read, and why.
func (r *reader) lacks(what, because string, needed bool) {
	r.in.Unread = append(r.in.Unread, why.Unread{What: what, Why: because, Needed: needed})
}

// goesOn records what could not be read because of an error, and reports whether to continue
// without it. It returns false if the API server does not answer, or does not accept the user.
func (r *reader) goesOn(what string, err error, needed bool) bool {
	status := apierrors.APIStatus(nil)
	if apierrors.IsUnauthorized(err) || !errors.As(err, &status) {
		return false
	}
	reported := err.Error()
	if apierrors.IsForbidden(err) {
		reported = "permission denied"
	}
	r.lacks(what, reported, needed)
	return true
}

func (r *reader) node(ctx context.Context, name string, needed bool) error {
	node, err := r.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && needed {
		return fmt.Errorf("there is no node %q", name)
	}
	if err != nil {
		if !r.goesOn("conditions of node "+name, err, needed) {
			return err
		}
		node = &corev1.Node{} // nothing is known about it
	}
	for _, c := range node.Status.Conditions {
		r.in.Conditions = append(r.in.Conditions, problem.Condition{
			Type: string(c.Type), Status: problem.Status(c.Status), Reason: c.Reason, Message: c.Message, LastTransition: c.LastTransitionTime.Time,
		})
	}
	return nil
}

// page returns the options of a bounded list.
func page(selector string) metav1.ListOptions {
	// Without a resource version, the API server returns the latest state and applies the limit.
	return metav1.ListOptions{FieldSelector: selector, Limit: maxObjects}
}

// namespaces returns the namespaces to search, each once.
func (r *reader) namespaces() []string {
	list := slices.Clone(r.c.Namespaces)
	if ns := r.in.Subject.Namespace; ns != "" {
		list = append(list, ns)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (r *reader) pod(p *corev1.Pod) {
	s := &r.in.Subject
	s.UID, s.Node, s.Phase = string(p.UID), p.Spec.NodeName, string(p.Status.Phase)
	s.Reason, s.Message = p.Status.Reason, p.Status.Message
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && s.Reason == "" {
			s.Reason, s.Message = c.Reason, c.Message
		}
	}
	r.in.Pods[s.UID], r.created = s.Namespace+"/"+s.Name, p.CreationTimestamp.Time
	if hash := pods.Hash(&p.ObjectMeta); hash != "" {
		r.in.Pods[hash] = s.Namespace + "/" + s.Name
		s.UID, r.created = hash, time.Time{}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			r.in.Containers = append(r.in.Containers, status(&list[i]))
		}
	}
}

func status(c *corev1.ContainerStatus) why.Container {
	out := why.Container{Name: c.Name, ID: bare(c.ContainerID), Ready: c.Ready, Restarts: int(c.RestartCount)}
	switch {
	case c.State.Running != nil:
		out.Running, out.Since = true, c.State.Running.StartedAt.Time
	case c.State.Waiting != nil:
		out.Waiting, out.Message = c.State.Waiting.Reason, c.State.Waiting.Message
	}
	out.Ended, out.Before = ending(c.State.Terminated), ending(c.LastTerminationState.Terminated)
	return out
}

func ending(t *corev1.ContainerStateTerminated) *why.Ending {
	if t == nil {
		return nil
	}
	return &why.Ending{At: t.FinishedAt.Time, Reason: t.Reason, Code: int(t.ExitCode), Message: t.Message, ID: bare(t.ContainerID)}
}

// bare returns a container's id without the runtime.
func bare(id string) string {
	if _, rest, ok := strings.Cut(id, "://"); ok {
		return rest
	}
	return id
}
