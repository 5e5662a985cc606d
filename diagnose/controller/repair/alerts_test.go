package repair

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// receiver is a controller that receives alerts, creates Diagnoses and decides on their repairs,
// together with an authorized sender.
type receiver struct {
	b     *bench
	url   string
	token string
}

// receive runs the controller's parts in one manager, as the command does, with the rights of the
// controller and those of docs/triggers.md.
func (b *bench) receive() *receiver {
	b.Helper()
	for _, role := range kubetest.ControllerRoles(b, "../../..") {
		if role.Kind == "Role" {
			b.server.Grant(b, user, b.system, role)
		}
	}
	b.server.ServiceAccount(b.T, b.system, "alertmanager", kubetest.Roles(b, "../../../docs/triggers.md")...)
	kinds, err := (&liveness.Config{Namespace: b.system, Annotations: policy.SetKeys}).ByObject()
	if err != nil {
		b.Fatal(err)
	}
	maps.Copy(kinds, controller.ByObject())
	log := slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	m, err := leader.New(b.server.Config(b.T, user), leader.Config{Namespace: b.system, ByObject: kinds, Scheme: scheme(b.T), Kinds: controller.Mapper(), Log: log})
	if err != nil {
		b.Fatal(err)
	}
	installed := make(chan struct{})
	remove, err := leader.WhenServed(m, controller.Served(),
		func() (func(), error) {
			return controller.Add(m, controller.Config{Namespace: b.system, Builtins: b.agents.built})
		},
		func() (func(), error) {
			return Add(m, Config{Namespace: b.system, Every: time.Second, Look: 50 * time.Millisecond, Log: log})
		},
		func() (func(), error) { close(installed); return func() {}, nil })
	if err != nil {
		b.Fatal(err)
	}
	address := kubetest.FreeAddress(b)
	part, removeStart, err := start.Add(m, start.Config{Namespace: b.system, Installed: installed, Alerts: start.AlertsConfig{Listen: address, Plain: true}, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		removeStart()
		remove()
	})
	b.waitFor("the controller takes alerts", func() bool { return part.Ready() == nil })
	return &receiver{b: b, url: "http://" + address + start.PathWebhook, token: b.server.Token(b.T, kubetest.TokenFor{Namespace: b.system, ServiceAccount: "alertmanager", Audience: start.DefaultAudience})}
}

// send posts an alert as Alertmanager does. If ends is zero, the alert is firing.
func (r *receiver) send(node string, starts, ends time.Time) {
	r.b.Helper()
	status := "firing"
	if !ends.IsZero() {
		status = "resolved"
	}
	body := fmt.Sprintf(`{
  "receiver": "kernosis", "status": %[1]q, "alerts": [
    {
      "status": %[1]q,
      "labels": {"alertname": "AppDown", "job": "node-exporter", "node": %[2]q, "severity": "critical"},
      "annotations": {"summary": "The application is down."},
      "startsAt": %[3]q, "endsAt": %[4]q,
      "generatorURL": "http://prometheus-0:9090/graph?g0.expr=up&g0.tab=1", "fingerprint": "341949f15f928ad4"
    }
  ],
  "groupLabels": {}, "commonLabels": {"alertname": "AppDown"}, "commonAnnotations": {},
  "externalURL": "http://alertmanager-0:9093", "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0
}`, status, node, starts.UTC().Format(time.RFC3339Nano), ends.UTC().Format(time.RFC3339Nano))
	r.b.waitFor("the alert is taken", func() bool {
		request, err := http.NewRequestWithContext(r.b.Context(), http.MethodPost, r.url, strings.NewReader(body))
		if err != nil {
			r.b.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+r.token)
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			r.b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			r.b.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
			r.b.Fatalf("%s: %s", resp.Status, text)
		}
		return resp.StatusCode == http.StatusOK
	})
}

// only waits for the one Diagnosis of the Trigger.
func (r *receiver) only() *v1alpha1.Diagnosis {
	r.b.Helper()
	var out *v1alpha1.Diagnosis
	r.b.waitFor("there is a Diagnosis", func() bool {
		var list v1alpha1.DiagnosisList
		if err := r.b.client.List(r.b.Context(), &list, client.InNamespace(r.b.system)); err != nil {
			r.b.Fatal(err)
		}
		for i := range list.Items {
			if metav1.GetControllerOf(&list.Items[i]) == nil {
				out = &list.Items[i]
			}
		}
		return out != nil
	})
	return out
}

// appDown creates a node whose application is down, a set without checks that restarts it and then
// cordons the node, and the Trigger for the alert. It returns the node and the fault.
func (b *bench) appDown(mendsAt int, attempts int32) (node string, f *fault) {
	b.Helper()
	node = b.nodes(1)[0]
	f = b.fault(mendsAt)
	cordon := b.operation("cordon", nil)
	b.escalating(f.repair, cordon, attempts)
	b.agent(node)
	t := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: b.system}}
	t.Spec.OperationSet = b.set(f.repair, cordon)
	t.Spec.SourceTemplate.PrometheusAlertTemplate = &v1alpha1.PrometheusAlertTemplate{
		Regexp: v1alpha1.PrometheusAlertTemplateRegexp{AlertName: "^AppDown$"}, NodeNameReferenceLabel: "node",
	}
	b.create(t)
	b.Cleanup(func() {
		if err := b.client.Delete(context.WithoutCancel(b.Context()), t); err != nil {
			b.Error(err)
		}
	})
	return node, f
}

// inForce waits until an alert creates a Diagnosis.
func (r *receiver) inForce(node string, starts time.Time) *v1alpha1.Diagnosis {
	r.b.Helper()
	r.b.waitFor("the Trigger is in force", func() bool {
		r.send(node, starts, time.Time{})
		var list v1alpha1.DiagnosisList
		return r.b.client.List(r.b.Context(), &list, client.InNamespace(r.b.system)) == nil && len(list.Items) > 0
	})
	return r.only()
}

func TestAnAlertIsResolvedByItsRepair(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node, f := b.appDown(1, 1)
	r := b.receive()
	starts := time.Now().Add(-time.Minute)
	d := r.inForce(node, starts)
	b.waitFor("it is repaired", func() bool { return f.tried() == 1 })
	b.waitFor("that is written", func() bool {
		res := b.get(d).Status.Result(1)
		return res != nil && res.State == v1alpha1.ResultSucceeded
	})
	ends := time.Now()
	// Alertmanager sends it one group_interval later: long after the repair's deadline.
	b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown ProblemUnknown")
	r.send(node, starts, ends)
	b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
	b.waitDecision(d, 2, "Withheld ProblemResolved")
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	if p := b.get(d).Status.Problem; p.State != v1alpha1.ProblemGone || p.Since.Sub(ends).Abs() > time.Microsecond {
		t.Errorf("%+v, resolved %s", p, ends)
	}
	if f.tried() != 1 || b.node(node).Spec.Unschedulable {
		t.Errorf("%d repairs, cordoned: %v", f.tried(), b.node(node).Spec.Unschedulable)
	}
}

func TestAnAlertThatKeepsFiringEscalates(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node, f := b.appDown(0, 1)
	r := b.receive()
	starts := time.Now().Add(-time.Minute)
	d := r.inForce(node, starts)
	b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown ProblemUnknown")
	// An earlier end and a later start belong to other episodes: neither decides anything.
	r.send(node, starts.Add(-time.Hour), starts.Add(-time.Minute))
	r.send(node, starts.Add(time.Second), time.Time{})
	b.holds("nothing escalates", time.Second, func() bool { return !b.node(node).Spec.Unschedulable })
	r.send(node, starts, time.Time{})
	b.waitFor("the node is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	b.waitEventsHave(d, "RepairDidNotHelp")
	if f.tried() != 1 {
		t.Errorf("%d repairs", f.tried())
	}
}

// waitEventsHave waits for an Event.
func (b *bench) waitEventsHave(d *v1alpha1.Diagnosis, reason string) {
	b.Helper()
	b.waitFor("Event "+reason, func() bool { return b.events(d.UID)[reason] > 0 })
}

// Alertmanager is down, or does not send resolved alerts.
func TestAnAlertThatIsNeverHeardOfAgain(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node, f := b.appDown(1, 2)
	r := b.receive()
	d := r.inForce(node, time.Now().Add(-time.Minute))
	b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown ProblemUnknown")
	b.waitEventsHave(d, "RepairUnverified")
	b.holds("nothing escalates", 3*time.Second, func() bool { return !b.node(node).Spec.Unschedulable && f.tried() == 1 })
}

// A step with two attempts, for an alert: the second attempt depends on what the alert's sender
// reports about the first Diagnosis.
func TestTwoAttemptsOfAnAlert(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node, f := b.appDown(2, 2)
	r := b.receive()
	starts := time.Now().Add(-time.Minute)
	d := r.inForce(node, starts)
	b.waitFor("it is tried twice", func() bool {
		r.send(node, starts, time.Time{})
		return f.tried() == 2
	})
	second := &b.follows(d)[0]
	b.waitFor("that is written", func() bool {
		res := b.get(second).Status.Result(1)
		return res != nil && res.State == v1alpha1.ResultSucceeded
	})
	r.send(node, starts, time.Now())
	b.waitCondition(second, v1alpha1.ConditionVerified, "True Helped")
	b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped")
	b.waitPhase(second, v1alpha1.PhaseSucceeded)
	if f.tried() != 2 || b.node(node).Spec.Unschedulable {
		t.Errorf("%d repairs, cordoned: %v", f.tried(), b.node(node).Spec.Unschedulable)
	}
}
