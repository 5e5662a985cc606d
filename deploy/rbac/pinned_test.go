package rbac_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// request is a request that an agent really makes. want is a part of the error, or empty if it must
// succeed.
type request struct {
	what string
	of   string // verb and resource, as in the list
	do   func(context.Context) error
	want string
}

// If a right covers more than an agent's own node, admission denies the rest: shown by real
// requests with a real agent's token.
func TestAnAgentWritesWhatIsOfItsNodeAlone(t *testing.T) {
	server := cluster.Server(t)
	node, elsewhere := server.Node(t), server.Node(t)
	install(t, server, nil)
	admin, other := apitest.Client(t, server.Admin()), server.Namespace(t)
	own := apitest.Client(t, server.WithToken(podToken(t, server, "kernosis-agent", node)))
	loose := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: "kernosis-agent"})))
	var done []string
	for _, r := range requests(t, admin, own, loose, node, elsewhere, other) {
		if r.want != "" {
			awaitRefusal(t, &r) // policies take effect a moment after they are created
		}
		err := r.do(t.Context())
		switch {
		case r.want == "" && err != nil:
			t.Errorf("%s: %v", r.what, err)
		case r.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), r.want)):
			t.Errorf("%s: %v, want %q", r.what, err, r.want)
		}
		done = append(done, r.of+" "+map[bool]string{true: "done", false: "refused"}[r.want == ""])
	}
	// The requests cover everything that an agent may write.
	l := agents(t)
	for _, rule := range slices.Concat(l.everywhere, l.inNamespace) {
		for _, verb := range rule.Verbs {
			if slices.Contains([]string{"get", "list", "watch"}, verb) {
				continue
			}
			of := verb + " " + rule.Resources[0]
			if !slices.Contains(done, of+" done") {
				t.Errorf("%s: is on the list but was not tried", of)
			}
			if strings.HasSuffix(of, "reviews") {
				continue // a query, which stores nothing
			}
			if !slices.Contains(done, of+" refused") {
				t.Errorf("%s: is on the list but was not tried beyond the agent's node", of)
			}
		}
	}
}

func awaitRefusal(t *testing.T, r *request) {
	t.Helper()
	for end := time.Now().Add(testenv.Within(30 * time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := r.do(t.Context()); err != nil && strings.Contains(err.Error(), r.want) {
			return
		}
	}
}

func requests(t *testing.T, admin, own, loose client.Client, node, elsewhere, other string) []request {
	t.Helper()
	nodeStatus := func(c client.Client, name, patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
		}
	}
	const condition = `{"status":{"conditions":[{"type":"KernelDeadlock","status":"True","reason":"R","message":"m"}]}}`
	const (
		ofNode, ofLease = "nodes/status", "leases"
		itsNode         = "an agent may only write its own Node"
		noRight         = "cannot"
	)
	diagnosisOf := func(namespace, node string) *v1alpha1.Diagnosis {
		d := diagnosis(namespace)
		d.Spec.NodeName, d.Spec.PodReference = node, nil
		return d
	}
	mine, theirs := diagnosisOf(system, node), diagnosisOf(system, elsewhere)
	for _, d := range []*v1alpha1.Diagnosis{mine, theirs} {
		if err := admin.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	make := func(c client.Client, o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return c.Create(ctx, o.DeepCopyObject().(client.Object)) }
	}
	verdict := func(c client.Client, d *v1alpha1.Diagnosis, status string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Status().Patch(ctx, d.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"status":`+status+`}`)))
		}
	}
	leaseOf := func(namespace, of, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease.Name(of)}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	for _, l := range []*coordinationv1.Lease{leaseOf(system, elsewhere, elsewhere), {ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "controller.kernosis.io"}}} {
		if err := admin.Create(t.Context(), l); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	renew := func(c client.Client, l *coordinationv1.Lease) func(context.Context) error {
		return func(ctx context.Context) error {
			now := &coordinationv1.Lease{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(l), now); err != nil {
				return err
			}
			now.Spec.HolderIdentity = l.Spec.HolderIdentity
			return c.Update(ctx, now)
		}
	}
	event := func(namespace, component, host string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "e-" + rand.String(8)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "web-0"},
			Reason:         "OOMKilling", Message: "m", Type: corev1.EventTypeWarning,
			Source: corev1.EventSource{Component: component, Host: host},
		}
	}
	reported, others := event(other, events.Component, node), event(other, events.Component, elsewhere)
	if err := admin.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	ofAnotherNode := event(metav1.NamespaceDefault, events.Component, node)
	ofAnotherNode.InvolvedObject = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: elsewhere}
	ofADeployment, withAnotherNode := event(other, events.Component, node), event(other, events.Component, node)
	ofADeployment.InvolvedObject = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: other, Name: "web"}
	withAnotherNode.Related = &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: elsewhere}
	count := func(e *corev1.Event) func(context.Context) error {
		return func(ctx context.Context) error {
			return own.Patch(ctx, e.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"count":2}`)))
		}
	}
	controllers := leaseOf(system, "x", node)
	controllers.Name = "controller.kernosis.io"
	return []request{
		{"a condition of its node", "patch " + ofNode, nodeStatus(own, node, condition), ""},
		{"a condition of another node", "patch " + ofNode, nodeStatus(own, elsewhere, condition), itsNode},
		{"a condition, by a token of no node", "patch " + ofNode, nodeStatus(loose, node, condition), "not bound to a node"},
		{"Ready", "patch " + ofNode, nodeStatus(own, node, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), "status.conditions"},
		{"a label", "patch " + ofNode, nodeStatus(own, node, `{"metadata":{"labels":{"a":"b"}}}`), "metadata"},
		{"capacity", "patch " + ofNode, nodeStatus(own, node, `{"status":{"capacity":{"cpu":"400"}}}`), "status: an agent"},
		{"a cordon", "patch nodes", func(ctx context.Context) error {
			return own.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"unschedulable":true}}`)))
		}, noRight},

		{"a Diagnosis of its node", "create diagnoses", make(own, diagnosisOf(system, node)), ""},
		{"a Diagnosis of another node", "create diagnoses", make(own, diagnosisOf(system, elsewhere)), "Diagnoses of its own node"},
		{"a Diagnosis of a tenant", "create diagnoses", make(own, diagnosis(other)), noRight},
		{"by a token of no node", "create diagnoses", make(loose, diagnosisOf(system, node)), "not bound to a node"},
		{"the status of its Diagnosis", "patch diagnoses/status", verdict(own, mine, `{"phase":"Running"}`), ""},
		{"the status of another's", "patch diagnoses/status", verdict(own, theirs, `{"phase":"Running"}`), "Diagnoses of its own node"},
		{"leave for a repair", "patch diagnoses/status", verdict(own, mine, `{"plan":{"digest":"`+strings.Repeat("0", 64)+`","steps":[{"id":1,"operation":"cordon"}]}}`), "status.plan"},

		{"its Lease", "create " + ofLease, make(own, leaseOf(system, node, node)), ""},
		{"its Lease, renewed", "update " + ofLease, renew(own, leaseOf(system, node, node)), ""},
		{"the Lease of an agent that is not there yet", "create " + ofLease, make(own, leaseOf(system, "unborn", "unborn")), "must be the node of the agent"},
		{"another's, taken over", "update " + ofLease, renew(own, leaseOf(system, elsewhere, node)), "must be the node of the agent"},
		{"the controllers' election", "update " + ofLease, renew(own, controllers), "must be the node of the agent"},
		{"a Lease of kubelet's", "create " + ofLease, make(own, leaseOf(corev1.NamespaceNodeLease, node, node)), noRight},

		{"an Event", "create events", make(own, reported), ""},
		{"an Event, counted", "patch events", count(reported), ""},
		{"an Event in another agent's name", "create events", make(own, event(other, events.Component, elsewhere)), "must be kernosis on " + node},
		{"an Event in kubelet's name", "create events", make(own, event(other, "kubelet", node)), "must be kernosis on " + node},
		{"an Event on another Node", "create events", make(own, ofAnotherNode), "on other Nodes than its own"},
		{"an Event on a Deployment", "create events", make(own, ofADeployment), "must be a pod or the agent's own Node"},
		{"an Event with another Node", "create events", make(own, withAnotherNode), "on other Nodes than its own"},
		{"an Event, by a token of no node", "create events", make(loose, event(other, events.Component, node)), "not bound to a node"},
		{"another agent's Event, counted", "patch events", count(others), "must be kernosis on " + node},

		{"who shows a token", "create tokenreviews", make(own, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "t"}}), ""},
		{"what somebody may", "create subjectaccessreviews", make(own, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "u", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}}), ""},

		{"Secrets", "list secrets", func(ctx context.Context) error {
			return own.List(ctx, &corev1.SecretList{}, client.InNamespace(system))
		}, noRight},
		{"the end of a pod", "delete pods", func(ctx context.Context) error {
			return own.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "x"}})
		}, noRight},
	}
}
