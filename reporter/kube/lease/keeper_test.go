package lease

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestLeaseSaysWhatItIsFor(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, func(c *Config) {
		c.Types = func() []string { return []string{"B", "A", "Ready", "", "not a type", "B"} }
	})
	r.waitRenewals(2)
	l := r.lease()
	node, err := server.Client().CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != node.UID || l.OwnerReferences[0].Kind != "Node" {
		t.Errorf("owners %+v, want the Node %s", l.OwnerReferences, node.UID)
	}
	if name, ok := NodeOf(l); !ok || name != r.node {
		t.Errorf("of node %q, %t", name, ok)
	}
	if *l.Spec.LeaseDurationSeconds != 40 || l.Annotations[AnnotationTypes] != "A,B" || l.Annotations[AnnotationVersion] != "v1" || !DrainingSince(l).IsZero() {
		t.Errorf("got %+v %v", l.Spec, l.Annotations)
	}
	if s := r.Stats(); s.Refused != 2 || s.Renewals[Created] != 1 || s.LastError != "" {
		t.Errorf("got %+v", s)
	}
}

func TestRenewalIsOneRequest(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, nil)
	r.waitRenewals(10)
	s := r.Stats()
	// At the start: the missing Lease, the Node, the creation of the Lease.
	if want := s.Renewals[Renewed] + 3; s.Requests != want && s.Requests != want+1 || s.Reads != 1 {
		t.Errorf("%d requests, %d reads of the lease for %d renewals", s.Requests, s.Reads, s.Renewals[Renewed])
	}
}

// The Lease lists what the agent lacks for as long as it lacks it.
func TestDegradedIsReported(t *testing.T) {
	var lacks atomic.Pointer[[]string]
	lacks.Store(&[]string{"no disk", "no rights"})
	r := start(t, cluster.Server(t), func(c *Config) { c.Degraded = func() []string { return *lacks.Load() } })
	r.waitRenewals(1)
	if got := r.lease().Annotations[AnnotationDegraded]; got != "no disk\nno rights" {
		t.Errorf("got %q", got)
	}
	lacks.Store(new([]string))
	r.waitFor("it is whole", func() bool { _, has := r.lease().Annotations[AnnotationDegraded]; return !has })
}

// The Lease of an agent that does not work is not renewed until it works. Its start may take any
// time, and its end is reported in any case.
func TestUnhealthyAgentDoesNotRenew(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	r := start(t, cluster.Server(t), func(c *Config) {
		c.Healthy = func() error {
			if sick.Load() {
				return errors.New("the engine has not moved")
			}
			return nil
		}
	})
	r.waitFor("the first one", func() bool { return r.lease() != nil })
	r.waitFor("it is not renewed", func() bool { return r.Stats().Renewals[Unhealthy] > 2 })
	s := r.Stats()
	if s.Renewals[Renewed] != 0 || s.Renewals[Created] != 1 || s.LastError != "agent: the engine has not moved" {
		t.Errorf("%+v", s)
	}
	sick.Store(false)
	r.waitRenewals(2)
	sick.Store(true)
	r.waitFor("it is not renewed again", func() bool { return r.Stats().Renewals[Unhealthy] > s.Renewals[Unhealthy]+2 })
	if err := r.stop(); err != nil || DrainingSince(r.lease()).IsZero() {
		t.Errorf("ended with %v, draining %s", err, DrainingSince(r.lease()))
	}
}

func TestEndIsReported(t *testing.T) {
	r := start(t, cluster.Server(t), nil)
	r.waitRenewals(1)
	before := time.Now()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	l := r.lease()
	if d := DrainingSince(l); d.Before(before.Truncate(time.Second)) || !r.Stats().Drained {
		t.Errorf("draining %s, ended after %s", d, before)
	}
	// The next agent takes over the Lease, and gets the types of the earlier one.
	next := start(t, r.server, func(c *Config) {
		c.Node, c.Namespace, c.Types = r.node, r.namespace, func() []string { return []string{"C"} }
	})
	next.waitRenewals(1)
	n := next.lease()
	if !DrainingSince(n).IsZero() || n.UID != l.UID || *n.Spec.LeaseTransitions != 1 || n.Annotations[AnnotationTypes] != "C" {
		t.Errorf("got %v %+v", n.Annotations, n.Spec)
	}
	if got := next.was(); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("earlier types %q", got)
	}
}

func TestAnotherAgentOfTheNodeTakesOver(t *testing.T) {
	server := cluster.Server(t)
	old := start(t, server, nil)
	old.waitRenewals(1)
	fresh := start(t, server, func(c *Config) { c.Node, c.Namespace, c.Version = old.node, old.namespace, "v2" })
	fresh.waitRenewals(1)
	old.waitFor("the old one sees it", func() bool { return old.Stats().Superseded })
	// Both renew; the Lease's content is the new agent's.
	old.waitRenewals(3)
	fresh.waitRenewals(3)
	if l := old.lease(); l.Annotations[AnnotationVersion] != "v2" || *l.Spec.LeaseTransitions != 1 {
		t.Errorf("got %v %+v", l.Annotations, l.Spec)
	}
	_ = old.stop()
	if l := old.lease(); !DrainingSince(l).IsZero() || old.Stats().Drained {
		t.Error("the old one said that the node's agent ends")
	}
	fresh.waitRenewals(2)
	_ = fresh.stop()
	if DrainingSince(old.lease()).IsZero() {
		t.Error("the new one did not say that it ends")
	}
}

func TestAfterTheOtherHasGoneTheLeaseIsOursAgain(t *testing.T) {
	server := cluster.Server(t)
	stays := start(t, server, nil)
	stays.waitRenewals(1)
	goes := start(t, server, func(c *Config) { c.Node, c.Namespace, c.Version = stays.node, stays.namespace, "v2" })
	goes.waitRenewals(2)
	_ = goes.stop()
	stays.waitFor("it is ours", func() bool {
		l := stays.lease()
		return DrainingSince(l).IsZero() && l.Annotations[AnnotationVersion] == "v1"
	})
}

func TestDeletedLeaseIsMadeAgain(t *testing.T) {
	r := start(t, cluster.Server(t), nil)
	r.waitRenewals(1)
	uid := r.lease().UID
	if err := r.server.Client().CoordinationV1().Leases(r.namespace).Delete(t.Context(), Name(r.node), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.waitFor("a new Lease", func() bool { l := r.lease(); return l != nil && l.UID != uid })
	r.waitFor("it is counted", func() bool { return r.Stats().Renewals[Created] == 2 })
}

func TestWrittenByAnother(t *testing.T) {
	r := start(t, cluster.Server(t), nil)
	r.waitRenewals(1)
	_, err := r.server.Client().CoordinationV1().Leases(r.namespace).Patch(t.Context(), Name(r.node), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+AnnotationTypes+`":"X","other":"kept"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.waitFor("it is as it was", func() bool { return r.lease().Annotations[AnnotationTypes] == "A,B" })
	if r.lease().Annotations["other"] != "kept" || r.Stats().Reads < 2 || r.Stats().Superseded {
		t.Errorf("%v %+v", r.lease().Annotations, r.Stats())
	}
}

func TestNoLeaseWithoutANode(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, func(c *Config) { c.Node = "comes-later" })
	r.waitFor("two tries", func() bool { return r.Stats().Renewals[conditions.NodeMissing] >= 2 })
	if r.lease() != nil {
		t.Error("there is one")
	}
	server.NodeNamed(t, r.node)
	r.waitRenewals(1)
}

func TestOutage(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	r := start(t, server, nil)
	r.waitRenewals(1)
	server.Stop(t)
	r.waitFor("it fails", func() bool { return r.Stats().Renewals[conditions.Unreachable] > 3 })
	server.Start(t)
	r.waitRenewals(2)
	server.Pause(t)
	r.waitFor("it times out", func() bool { return r.Stats().Renewals[conditions.TimedOut] > 0 })
	server.Resume(t)
	r.waitRenewals(2)
	// The end is bounded if the server does not answer.
	server.Stop(t)
	began := time.Now()
	_ = r.stop()
	if took := time.Since(began); took > defaultDrainTimeout+5*time.Second || r.Stats().Drained {
		t.Errorf("took %s, drained %t", took, r.Stats().Drained)
	}
	server.Start(t)
}

// between returns a proxy that answers with a status code while one is set.
func between(t *testing.T, server *kubetest.Server) (*atomic.Int32, *rest.Config, *atomic.Int32) {
	t.Helper()
	var code, refused atomic.Int32
	p, config := kubetest.NewProxy(t, server, server.Admin())
	t.Cleanup(p.Close)
	p.Do(func(w http.ResponseWriter, _ *http.Request) bool {
		c := int(code.Load())
		if c == 0 {
			return false
		}
		refused.Add(1)
		if c == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(c)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"details":{"retryAfterSeconds":1},"reason":"%s"}`,
			c, map[int]string{429: "TooManyRequests", 403: "Forbidden", 503: "ServiceUnavailable", 401: "Unauthorized"}[c])
		return true
	})
	return &code, config, &refused
}

func TestRefusalsAreTriedAgain(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	code, config, refused := between(t, server)
	r := start(t, server, func(c *Config) { c.Client = kubetest.Clientset(t, config) })
	for status, outcome := range map[int32]conditions.Outcome{429: conditions.Throttled, 503: conditions.ServerError, 403: conditions.Forbidden, 401: conditions.Unauthorized} {
		r.waitRenewals(1)
		before := r.Stats().Renewals[outcome]
		refused.Store(0)
		code.Store(status)
		r.waitFor(string(outcome), func() bool { return r.Stats().Renewals[outcome] >= before+2 })
		if status == 429 && refused.Load() > 3 {
			t.Errorf("%d requests, though it was asked to wait a second", refused.Load())
		}
		code.Store(0)
	}
	r.waitRenewals(1)
}

func TestRightsOfTheAgent(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, func(c *Config) {
		c.Node = server.Node(t)
		c.Client = kubetest.Clientset(t, server.Config(t, "nobody"))
	})
	r.waitFor("it is forbidden", func() bool { return r.Stats().Renewals[conditions.Forbidden] > 0 })
	if !strings.Contains(r.Stats().LastError, "forbidden") {
		t.Errorf("%q", r.Stats().LastError)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 200) + "." + strings.Repeat("b", 52)
	for _, node := range []string{"n1", "ip-10-0-0-1.eu-west-1.compute.internal", long, long[:252] + "c"} {
		name := Name(node)
		if len(name) > maxName || !strings.HasPrefix(name, prefix) {
			t.Errorf("%s: %s", node, name)
		}
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelComponent: ComponentAgent}}}
		l.Spec.HolderIdentity = &node
		if got, ok := NodeOf(l); !ok || got != node {
			t.Errorf("%s: %q, %t", node, got, ok)
		}
		other := "other"
		l.Spec.HolderIdentity = &other
		if _, ok := NodeOf(l); ok {
			t.Errorf("the Lease %s speaks for another node", name)
		}
	}
	if Name(long) == Name(long[:252]+"c") {
		t.Error("two nodes have one Lease")
	}
}

func TestListedTypesAreBounded(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("T%03d", i))
	}
	list := append(many, string(corev1.NodeReady), "bad type", "")
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationTypes: strings.Join(list, ",")}}}
	if got := TypesOf(l); !slices.Equal(got, many[:conditions.MaxTypes]) {
		t.Errorf("%d types: %q", len(got), got)
	}
}
