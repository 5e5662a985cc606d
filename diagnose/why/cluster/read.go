package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/probe/podspec"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/why"
)

// Config says what is read and for whom.
type Config struct {
	REST    *rest.Config
	Subject why.Subject
	// Namespaces are where agents and their Diagnoses may be, besides the subject's.
	Namespaces []string
	Now        time.Time
	Since      time.Duration
	Timeout    time.Duration // of a request; 0: 10 s
}

// maxObjects bounds each list: what is beyond it is named as unread.
const maxObjects = 500

// reader reads for one answer.
type reader struct {
	c      Config
	core   kubernetes.Interface
	own    rest.Interface // of our kinds
	params runtime.ParameterCodec
	in     why.Input
}

// Read returns what the API server says. Its error says that the subject is not there, or
// that no API server answers.
func Read(ctx context.Context, c Config) (why.Input, error) {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	r := &reader{c: c, in: why.Input{Subject: c.Subject, Now: c.Now, Since: c.Since, Pods: map[string]string{}}}
	to := rest.CopyConfig(c.REST)
	to.Timeout = c.Timeout
	var err error
	if r.core, err = kubernetes.NewForConfig(to); err != nil {
		return r.in, fmt.Errorf("client: %w", err)
	}
	if err := r.kinds(to); err != nil {
		return r.in, fmt.Errorf("client: %w", err)
	}
	r.in.Read = []string{"API server " + to.Host}
	if c.Subject.Kind == why.KindNode {
		return r.in, r.ofNode(ctx)
	}
	err = r.ofPod(ctx)
	return r.in, err
}

// kinds makes the client of our own kinds, without asking what the server has.
func (r *reader) kinds(to *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c := rest.CopyConfig(to)
	group := v1alpha1.GroupVersion()
	c.GroupVersion, c.APIPath = &group, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	var err error
	r.own, err = rest.RESTClientFor(c)
	r.params = runtime.NewParameterCodec(scheme)
	return err
}

func (r *reader) ofPod(ctx context.Context) error {
	s := &r.in.Subject
	pod, err := r.core.CoreV1().Pods(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		r.pod(pod)
	case apierrors.IsNotFound(err):
		// It may be gone, and have left Events.
		r.lacks("pod "+s.String(), "there is no such pod", false)
	case !r.goesOn("pod "+s.String(), err, true):
		return err
	}
	missing := apierrors.IsNotFound(err)
	by := "involvedObject.kind=Pod,involvedObject.name=" + s.Name
	if s.UID != "" {
		// Of a static pod kubelet's and ours are on another UID than the object's; the name
		// finds both, and pods that had it before.
		by += ",involvedObject.namespace=" + s.Namespace
	}
	if err := r.events(ctx, s.Namespace, by, s.String()); err != nil {
		return err
	}
	if missing && len(r.in.Problems)+len(r.in.Events) == 0 {
		return fmt.Errorf("there is no pod %s, and no Event of one", s.String())
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
	// Ours are where kubelet's are; a namespace can be configured for them.
	if err := r.events(ctx, metav1.NamespaceAll, "involvedObject.kind=Node,involvedObject.name="+name, "node "+name); err != nil {
		return err
	}
	r.diagnoses(ctx, name)
	r.podNames(ctx, name)
	return nil
}

// podNames takes the names of a node's pods, as texts have UIDs. Without them these stay.
func (r *reader) podNames(ctx context.Context, node string) {
	list, err := r.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, page("spec.nodeName="+node))
	if err != nil {
		return
	}
	for i := range list.Items {
		p := &list.Items[i]
		r.in.Pods[string(p.UID)] = p.Namespace + "/" + p.Name
		if hash := podspec.Hash(&p.ObjectMeta); hash != "" {
			r.in.Pods[hash] = p.Namespace + "/" + p.Name
		}
	}
}

// lacks notes what could not be read, and why.
func (r *reader) lacks(what, because string, needed bool) {
	r.in.Unread = append(r.in.Unread, why.Unread{What: what, Why: because, Needed: needed})
}

// goesOn notes what an error kept from being read, and reports whether an answer goes on without
// it: it does, unless nobody answers at all.
func (r *reader) goesOn(what string, err error, needed bool) bool {
	status := apierrors.APIStatus(nil)
	if apierrors.IsUnauthorized(err) || !errors.As(err, &status) {
		return false
	}
	reported := err.Error()
	if apierrors.IsForbidden(err) {
		reported = "forbidden to you"
	}
	r.lacks(what, reported, needed)
	return true
}

// node takes the Node's conditions.
func (r *reader) node(ctx context.Context, name string, needed bool) error {
	node, err := r.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && needed {
		return fmt.Errorf("there is no node %q", name)
	}
	if err != nil {
		if !r.goesOn("conditions of node "+name, err, needed) {
			return err
		}
		node = &corev1.Node{} // of which nothing is known
	}
	for _, c := range node.Status.Conditions {
		r.in.Conditions = append(r.in.Conditions, problem.Condition{
			Type: string(c.Type), Status: problem.Status(c.Status), Reason: c.Reason, Message: c.Message, LastTransition: c.LastTransitionTime.Time,
		})
	}
	return nil
}

// page is a bounded list.
func page(selector string) metav1.ListOptions {
	// From the API server's cache: fast, and at most moments old.
	return metav1.ListOptions{FieldSelector: selector, Limit: maxObjects}
}

// namespaces are those to look in, each once.
func (r *reader) namespaces() []string {
	list := slices.Clone(r.c.Namespaces)
	if ns := r.in.Subject.Namespace; ns != "" {
		list = append(list, ns)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
