package repair

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fault is a fault of this machine: nothing listens on a port, which the check check-no-listener
// finds. A web server repairs it: it listens from attempt mendsAt on.
type fault struct {
	b      *bench
	port   int
	check  string // the Operations
	repair string

	mu       sync.Mutex
	mendsAt  int // the attempt that helps; 0: none does
	status   int // HTTP status of the repair
	tries    int
	listener net.Listener
}

func (b *bench) fault(mendsAt int) *fault {
	b.Helper()
	f := &fault{b: b, mendsAt: mendsAt, status: http.StatusOK, port: kubetest.FreePort(b)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(f.try())
		w.Write([]byte("{}"))
	}))
	b.Cleanup(func() { server.Close(); f.end() })
	f.check = b.operation("check-no-listener", map[string]string{"address": "127.0.0.1", "port": strconv.Itoa(f.port)})
	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{GenerateName: "listen-"}}
	o.Spec.Effect = v1alpha1.EffectRemediate
	o.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: int32(server.Listener.Addr().(*net.TCPAddr).Port)}
	b.create(o)
	f.repair = o.Name
	return f
}

// try is one attempt of the repair. It returns the HTTP status.
func (f *fault) try() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.tries != f.mendsAt {
		return f.status
	}
	lc := net.ListenConfig{}
	var err error
	if f.listener, err = lc.Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(f.port)); err != nil {
		f.b.Error(err)
	}
	return f.status
}

// fails makes all further attempts fail.
func (f *fault) fails() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = http.StatusInternalServerError
}

func (f *fault) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		f.listener.Close()
	}
}

func (f *fault) tried() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries
}

// escalating creates a policy that makes a repair up to attempts times, and then cordons the node.
func (b *bench) escalating(repair, cordon string, attempts int32) string {
	b.Helper()
	return b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.CooldownPerNode = &metav1.Duration{Duration: time.Hour}
		p.VerifyWithin = metav1.Duration{Duration: 2 * time.Second}
		p.Escalation = []v1alpha1.EscalationStep{{Operation: repair, Order: 1, Attempts: attempts}, {Operation: cordon, Order: 2, Attempts: 1}}
	})
}

// by creates a Diagnosis of a Trigger whose problem nothing reports on: for an Event or a schedule.
func (b *bench) by(source trigger.Source, node, set string) *v1alpha1.Diagnosis {
	b.Helper()
	d := &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "d-", Namespace: b.system, Labels: map[string]string{v1alpha1.LabelTrigger: "t", trigger.LabelSource: string(source)},
			Annotations: map[string]string{trigger.AnnotationSubject: "s", trigger.AnnotationEpisode: time.Now().UTC().Format(time.RFC3339Nano)},
		},
		Spec: v1alpha1.DiagnosisSpec{OperationSet: set, NodeName: node},
	}
	b.create(d)
	return d
}

// follows returns the children of a Diagnosis, in the order of their creation.
func (b *bench) follows(d *v1alpha1.Diagnosis) []v1alpha1.Diagnosis {
	b.Helper()
	var list v1alpha1.DiagnosisList
	if err := b.client.List(b.Context(), &list, client.InNamespace(b.system)); err != nil {
		b.Fatal(err)
	}
	out := slices.DeleteFunc(list.Items, func(f v1alpha1.Diagnosis) bool {
		owner := metav1.GetControllerOfNoCopy(&f)
		return owner == nil || owner.UID != d.UID
	})
	slices.SortFunc(out, func(a, b v1alpha1.Diagnosis) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return out
}

// Nothing reports whether the problem of an Event or a schedule lasts, and the set has no check:
// after the repair nothing escalates, and the condition says so.
func TestNothingReportsWhetherARepairHelped(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for _, source := range []trigger.Source{trigger.SourceEvent, trigger.SourceCron, trigger.SourceAlert, ""} {
		t.Run("source "+string(source), func(t *testing.T) {
			b := newBench(t)
			node := b.nodes(1)[0]
			restart, cordon := b.operation("restart-unit", map[string]string{"unit": "kubelet"}), b.operation("cordon", nil)
			b.escalating(restart, cordon, 1)
			r := b.control(nil)
			d := b.by(source, node, b.set(restart, cordon))
			b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown ProblemUnknown")
			b.waitDecision(d, 2, "Wait ProblemUnknown")
			b.holds("the node is left alone", 2*time.Second, func() bool { return !b.node(node).Spec.Unschedulable })
			for _, c := range b.get(d).Status.Conditions {
				if c.Type == v1alpha1.ConditionVerified && !strings.Contains(c.Message, "has no check before it that can be repeated") {
					t.Errorf("%+v", c)
				}
			}
			if n := len(b.follows(d)); n != 0 {
				t.Errorf("%d Diagnoses follow", n)
			}
			if n := r.count(t, "kernosis_remediation_verifications_total", "operation", restart, "result", "Unknown"); n != 1 {
				t.Errorf("counted %v times", n)
			}
			b.waitEvents(d.UID, "RepairAllowed", "Repaired", "RepairWaits", "RepairWaits", "RepairUnverified")
			// A person checks, and approves the cordon.
			b.approve(d, b.get(d).Status.Plan.Digest)
			b.waitFor("it is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
		})
	}
}

// A waiting verification continues when something reports later: an alert that is sent again, or
// one that is resolved.
func TestWhatReportsLater(t *testing.T) {
	b := newBench(t)
	restart, cordon := b.operation("restart-unit", map[string]string{"unit": "kubelet"}), b.operation("cordon", nil)
	b.changePolicy(b.escalating(restart, cordon, 1), func(p *v1alpha1.RemediationPolicySpec) { *p.Budget.MaxNodes = 2 })
	b.control(nil)
	set, nodes := b.set(restart, cordon), b.nodes(2)
	resolved, fires := b.by(trigger.SourceAlert, nodes[0], set), b.by(trigger.SourceAlert, nodes[1], set)
	for _, d := range []*v1alpha1.Diagnosis{resolved, fires} {
		b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown ProblemUnknown")
	}
	b.status(resolved, func(s *v1alpha1.DiagnosisStatus) {
		began := allowedRepairs(b.get(resolved))[0].begun
		s.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NewMicroTime(began.Add(time.Second))}
	})
	b.waitCondition(resolved, v1alpha1.ConditionVerified, "True Helped")
	b.waitDecision(resolved, 2, "Withheld ProblemResolved")
	now := metav1.NowMicro()
	b.status(fires, func(s *v1alpha1.DiagnosisStatus) {
		s.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: now, Seen: &now}
	})
	b.waitDecision(fires, 2, "Run Allowed")
	b.waitFor("it is cordoned", func() bool { return b.node(nodes[1]).Spec.Unschedulable })
	if b.node(nodes[0]).Spec.Unschedulable {
		t.Error("a healthy node is cordoned")
	}
}

// The checks of a set decide: the agent's own worker runs them again after the repair, for the
// Diagnosis of an Event or a schedule.
func TestChecksRunAgain(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, test := range map[string]struct {
		source  trigger.Source
		mendsAt int
	}{
		"event, repaired": {trigger.SourceEvent, 1}, "event, lasts": {trigger.SourceEvent, 0},
		"cron, repaired": {trigger.SourceCron, 1}, "cron, lasts": {trigger.SourceCron, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.nodes(1)[0]
			f, cordon := b.fault(test.mendsAt), b.operation("cordon", nil)
			b.escalating(f.repair, cordon, 1)
			b.agent(node)
			b.control(nil)
			d := b.by(test.source, node, b.set(f.check, f.repair, cordon))
			if test.mendsAt == 0 {
				b.waitFor("the node is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
				b.waitPhase(d, v1alpha1.PhaseSucceeded)
				b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped") // the cordon
				b.waitFor("what follows ends", func() bool {
					all := b.follows(d)
					return len(all) == 2 && all[0].Status.Phase == v1alpha1.PhaseSucceeded && all[1].Status.Phase == v1alpha1.PhaseSucceeded
				})
			} else {
				b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
				b.holds("the node is left alone", 3*time.Second, func() bool { return !b.node(node).Spec.Unschedulable })
				all := b.follows(d)
				if len(all) != 1 || all[0].Status.Result(1).State != v1alpha1.ResultRefuted {
					t.Errorf("%+v", all)
				}
			}
			if f.tried() != 1 {
				t.Errorf("%d repairs", f.tried())
			}
		})
	}
}

// A node that became ready after the repair counts as ready when its check is repeated, also if its
// clock is ahead of the controller's.
func TestARepeatedCheckOfANodeWhoseClockIsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, time.Minute, time.Hour} {
		l := unproven(t, ahead, v1alpha1.ResultRefuted, nil)
		if err := l.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified); got.Reason != v1alpha1.ReasonHelped {
			t.Errorf("%s ahead: %s: %s", ahead, got.Reason, got.Message)
		}
	}
}

// The condition Verified says that a follow-up Diagnosis checks only while it does.
func TestTextsAboutARepeatedCheck(t *testing.T) {
	for state, want := range map[v1alpha1.ResultState]string{
		v1alpha1.ResultRunning:   "is checking again",
		v1alpha1.ResultRefuted:   "has checked again",
		v1alpha1.ResultSucceeded: "has checked again",
	} {
		l := unproven(t, 0, state, nil)
		if err := l.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified); !strings.HasSuffix(got.Message, want) {
			t.Errorf("%s: %s: %s", state, got.Reason, got.Message)
		}
	}
}

// If the run was cancelled, or the outcome of its repair is unknown, and nothing reports whether the
// repair helped, no follow-up Diagnosis checks, because it would make the next attempt.
func TestNoCheckThatWouldTryAgain(t *testing.T) {
	for why, change := range map[string]func(*v1alpha1.Diagnosis){
		"the run was cancelled": func(d *v1alpha1.Diagnosis) {
			d.Spec.Cancel, d.Status.Phase = true, v1alpha1.PhaseCancelled
			d.Status.Results[1].State = v1alpha1.ResultFailed
		},
		"its outcome is unknown": func(d *v1alpha1.Diagnosis) {
			d.Status.Phase = v1alpha1.PhaseUnknown
			d.Status.Results[1].State = v1alpha1.ResultUnknown
		},
	} {
		t.Run(why, func(t *testing.T) {
			l := unproven(t, 0, "", change)
			if err := l.verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			var all v1alpha1.DiagnosisList
			if err := l.client.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			if len(all.Items) != 1 {
				t.Errorf("%s follows", all.Items[1].Name)
			}
			if got := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified); got.Reason != v1alpha1.ReasonProblemUnknown || !strings.Contains(got.Message, why) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}

// A Diagnosis that is cancelled after its end cancels those that follow it, which would repair.
func TestCancelAfterTheEnd(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		l := unproven(t, 0, v1alpha1.ResultRunning, func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = cancelled })
		first := following(l.d, 2)
		second := following(first, 2)
		if err := l.client.Create(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		for _, d := range []*v1alpha1.Diagnosis{l.d, first} {
			l.d = &v1alpha1.Diagnosis{}
			if err := l.client.Get(t.Context(), client.ObjectKeyFromObject(d), l.d); err != nil {
				t.Fatal(err)
			}
			if err := l.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []*v1alpha1.Diagnosis{first, second} {
			if err := l.client.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			if d.Spec.Cancel != cancelled {
				t.Errorf("%s is cancelled: %v, want %v", d.Name, d.Spec.Cancel, cancelled)
			}
		}
	}
}

// Only a repair that succeeded counts as made, for a run that follows.
func TestAttemptsThatFailed(t *testing.T) {
	now := metav1.NowMicro()
	for state, failed := range map[v1alpha1.ResultState]bool{v1alpha1.ResultSucceeded: false, v1alpha1.ResultFailed: true, v1alpha1.ResultUnknown: true} {
		d := &v1alpha1.Diagnosis{}
		d.Status.Results = []v1alpha1.Result{{ID: 2, Operation: "drain", State: state, StartTime: &now}}
		d.Status.Remediations = []v1alpha1.Remediation{{ID: 2, Verb: v1alpha1.RemediationRun, Time: now}}
		if all := attemptsOf(d); len(all) != 1 || all[0].Failed != failed {
			t.Errorf("%s: %+v", state, all)
		}
	}
}

// unproven returns a look at a Diagnosis whose repair had its time to help, while nothing reports
// whether it did. The node's clock is ahead. checked is the state of the repeated check; empty:
// there is no follow-up Diagnosis.
func unproven(t *testing.T, ahead time.Duration, checked v1alpha1.ResultState, change func(*v1alpha1.Diagnosis)) *look {
	t.Helper()
	ended := metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	now := ended.Add(5*time.Minute + 10*time.Second)
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "check-no-listener", To: []int32{2}}, {ID: 2, Operation: "restart-unit"}}
	began := metav1.NewMicroTime(ended.Add(ahead))
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: "d"}, Spec: v1alpha1.DiagnosisSpec{OperationSet: "set", NodeName: "n"}}
	d.Status.Phase = v1alpha1.PhaseSucceeded
	d.Status.Results = []v1alpha1.Result{
		{ID: 1, Operation: "check-no-listener", State: v1alpha1.ResultSucceeded, StartTime: &began},
		{ID: 2, Operation: "restart-unit", State: v1alpha1.ResultSucceeded, StartTime: &began},
	}
	d.Status.Remediations = []v1alpha1.Remediation{{ID: 2, Verb: v1alpha1.RemediationRun, Time: metav1.NewMicroTime(ended.Time)}}
	d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonVerifying, LastTransitionTime: ended}}
	if change != nil {
		change(d)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ended.Add(time.Minute + ahead))}}
	p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RemediationPolicySpec{Mode: v1alpha1.ModeEnforce, VerifyWithin: metav1.Duration{Duration: 5 * time.Minute}}}
	objects := []client.Object{set, d, n, p}
	if checked != "" {
		again := following(d, 2)
		again.Status.Results = []v1alpha1.Result{{ID: 1, Operation: "check-no-listener", State: checked}}
		objects = append(objects, again)
	}
	byNodeName := func(o client.Object) []string { return []string{o.(*v1alpha1.Diagnosis).Spec.NodeName} }
	byParentUID := func(o client.Object) []string {
		if p := o.(*v1alpha1.Diagnosis).Parent(); p != nil {
			return []string{string(p.UID)}
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithStatusSubresource(d).WithIndex(d, byNode, byNodeName).WithIndex(d, controller.IndexParent, byParentUID).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	return &look{d: d, now: now, reconciler: &reconciler{
		client: c, live: c, builtins: catalog.All(operation.Host{}), counts: newCounts(), reporter: &reporter{recorder: silent{}},
		config: &Config{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)},
	}}
}

// A step with two attempts is made twice, with a check of its success in between, and only then it
// is the next step's turn.
func TestTwoAttempts(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, test := range map[string]struct {
		mendsAt, tries int
		cordoned       bool
	}{"lasts": {0, 2, true}, "the second helps": {2, 2, false}, "the first helps": {1, 1, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.nodes(1)[0]
			f, cordon := b.fault(test.mendsAt), b.operation("cordon", nil)
			p := b.escalating(f.repair, cordon, 2)
			b.agent(node)
			b.control(nil)
			d := b.by(trigger.SourceCron, node, b.set(f.check, f.repair, cordon))
			b.waitFor("so many tries", func() bool { return f.tried() == test.tries })
			if test.cordoned {
				b.waitFor("the node is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
			}
			b.waitFor("all is verified", func() bool {
				helped, running := false, false
				for _, x := range append(b.follows(d), *b.get(d)) {
					c := b.condition(&x, v1alpha1.ConditionVerified)
					helped = helped || c == "True Helped"
					running = running || !x.Status.Phase.Ended() || c == "Unknown Verifying"
				}
				return helped != test.cordoned && !running
			})
			b.holds("nothing more is done", 3*time.Second, func() bool {
				return f.tried() == test.tries && b.node(node).Spec.Unschedulable == test.cordoned
			})
			if !test.cordoned {
				b.waitFor("no slot is held", func() bool { return strings.HasSuffix(b.slots(p), "+") })
			}
		})
	}
}

// A step whose attempts fail is followed by the next one, although a failed repair ends its run:
// whether the checks show that the problem lasts, or the node's agent reports it.
func TestTheNextStepAfterFailedAttempts(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for _, attempts := range []int32{1, 2} {
		for _, reported := range []bool{false, true} {
			t.Run(fmt.Sprintf("attempts %d, reported %v", attempts, reported), func(t *testing.T) {
				b := newBench(t)
				node := b.nodes(1)[0]
				f, cordon := b.fault(0), b.operation("cordon", nil)
				f.fails()
				b.escalating(f.repair, cordon, attempts)
				b.agent(node)
				b.control(nil)
				set := b.set(f.check, f.repair, cordon)
				var d *v1alpha1.Diagnosis
				if reported {
					d = b.diagnose(node, set, nil)
				} else {
					d = b.by(trigger.SourceCron, node, set)
				}
				b.waitPhase(d, v1alpha1.PhaseFailed)
				b.waitFor("the node is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
				if n := f.tried(); n != int(attempts) {
					t.Errorf("tried %d times", n)
				}
			})
		}
	}
}

// Where nothing reports whether a repair helped, the run that repeats its checks makes no other repair
// after one that failed and is no step of an escalation.
func TestNoOtherRepairAfterOneThatFailed(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	f, cordon := b.fault(0), b.operation("cordon", nil)
	f.fails()
	b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.VerifyWithin = metav1.Duration{Duration: 2 * time.Second}
	})
	b.agent(node)
	b.control(nil)
	d := b.by(trigger.SourceCron, node, b.set(f.check, f.repair, cordon))
	b.waitPhase(d, v1alpha1.PhaseFailed)
	b.waitFor("what follows ends", func() bool {
		all := b.follows(d)
		return len(all) == 1 && all[0].Status.Phase.Ended()
	})
	b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped")
	if b.decision(&b.follows(d)[0], 2) != "Withheld AttemptsExhausted" || b.node(node).Spec.Unschedulable || f.tried() != 1 {
		t.Errorf("%s, cordoned %v, tried %d times", b.decision(&b.follows(d)[0], 2), b.node(node).Spec.Unschedulable, f.tried())
	}
}

// A follow-up Diagnosis continues after a failed repair only with the next step of its escalation,
// and only if the run does not get there by itself.
func TestWhatFollowsAFailedRepair(t *testing.T) {
	for name, test := range map[string]struct {
		operations []string
		change     func(*v1alpha1.Diagnosis)
		attempts   int32 // of restart
		follows    bool
	}{
		"the next step":                       {[]string{"check", "restart", "check", "cordon"}, nil, 1, true},
		"no next step in the set":             {[]string{"cordon", "restart", "reboot"}, nil, 1, false},
		"a repair that is no step":            {[]string{"check", "reboot", "cordon"}, nil, 1, false},
		"a person has cancelled the run":      {[]string{"check", "restart", "cordon"}, func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = true }, 1, false},
		"a second attempt":                    {[]string{"check", "restart", "cordon"}, nil, 2, true},
		"a person has cancelled the attempts": {[]string{"check", "restart", "cordon"}, func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = true }, 2, false},
		"its outcome is unknown":              {[]string{"check", "restart", "cordon"}, func(d *v1alpha1.Diagnosis) { d.Status.Results[0].State = v1alpha1.ResultUnknown }, 1, false},
		"another repair is next on its path":  {[]string{"check", "restart", "cordon"}, func(d *v1alpha1.Diagnosis) { awaits(d, 3) }, 1, false},
		"the agent has not read the outcome": {[]string{"check", "restart", "cordon"}, func(d *v1alpha1.Diagnosis) {
			now := metav1.NowMicro()
			d.Status.Remediations[0].Outcome = &v1alpha1.RemediationOutcome{State: v1alpha1.ResultFailed, StartTime: now, CompletionTime: &now}
			d.Status.Results[0].State = v1alpha1.ResultAwaitingApproval
		}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NowMicro()
			set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}}
			set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}}
			for i, o := range test.operations {
				n := v1alpha1.Node{ID: int32(i + 1), Operation: o}
				if i+1 < len(test.operations) {
					n.To = []int32{n.ID + 1}
				}
				set.Spec.AdjacencyList = append(set.Spec.AdjacencyList, n)
			}
			d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "system", UID: "d"}, Spec: v1alpha1.DiagnosisSpec{OperationSet: "set", NodeName: "n"}}
			d.Status.Results = []v1alpha1.Result{{ID: 2, Operation: test.operations[1], State: v1alpha1.ResultFailed, StartTime: &now}}
			d.Status.Remediations = []v1alpha1.Remediation{{ID: 2, Verb: v1alpha1.RemediationRun, Time: now}}
			if test.change != nil {
				test.change(d)
			}
			p := &v1alpha1.RemediationPolicy{Spec: v1alpha1.RemediationPolicySpec{Mode: v1alpha1.ModeEnforce}}
			p.Spec.Escalation = []v1alpha1.EscalationStep{{Operation: "restart", Order: 1, Attempts: test.attempts}, {Operation: "cordon", Order: 2, Attempts: 1}}
			node := func(o client.Object) []string { return []string{o.(*v1alpha1.Diagnosis).Spec.NodeName} }
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(set, d).WithIndex(&v1alpha1.Diagnosis{}, byNode, node).Build()
			l := &look{reconciler: &reconciler{client: c, live: c, config: &Config{Log: slog.New(slog.DiscardHandler)}}, d: d, now: now.Time}
			v := &view{policies: []*policy.Policy{policy.New(p)}, cluster: policy.NewCluster([]policy.Node{{Name: "n", Ready: true}})}
			if err := l.tryAgain(t.Context(), v, &allowedRepairs(d)[0]); err != nil {
				t.Fatal(err)
			}
			var all v1alpha1.DiagnosisList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			if got := len(all.Items) == 2; got != test.follows {
				t.Errorf("followed: %v", got)
			}
		})
	}
}

// awaits lets the run of a Diagnosis wait for a repair.
func awaits(d *v1alpha1.Diagnosis, id int32) {
	d.Status.Results = append(d.Status.Results, v1alpha1.Result{ID: id, Operation: "cordon", State: v1alpha1.ResultAwaitingApproval})
}

// Attempts for a problem whose end the node's agent reports: the second attempt depends on what is
// reported about the first Diagnosis' problem.
func TestTwoAttemptsOfAProblem(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.ready(node, corev1.ConditionFalse) // otherwise the first one's slot is released
	restart, cordon := b.operation("restart-unit", map[string]string{"unit": "kubelet"}), b.operation("cordon", nil)
	b.escalating(restart, cordon, 2)
	b.control(nil)
	d := b.diagnose(node, b.set(restart, cordon), nil)
	b.waitFor("it is tried twice", func() bool { return len(b.made()) == 2 })
	b.waitDecision(d, 2, "Withheld EscalationOrder")
	second := b.follows(d)
	if len(second) != 1 || second[0].Annotations[v1alpha1.AnnotationFollows] != d.Name+"/1" || second[0].Spec.OperationSet != d.Spec.OperationSet {
		t.Fatalf("%+v", second)
	}
	b.ready(node, corev1.ConditionTrue)
	b.problem(d, v1alpha1.ProblemGone)
	b.waitCondition(&second[0], v1alpha1.ConditionVerified, "True Helped")
	b.waitDecision(&second[0], 2, "Withheld ProblemResolved")

	d = b.diagnose(node, d.Spec.OperationSet, func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = v1alpha1.Parameters{"a": "b"} })
	b.waitDecision(d, 1, "Wait Cooldown") // for another problem
	if b.node(node).Spec.Unschedulable {
		t.Error("it is cordoned")
	}
}

// When a controller ends between the end of a repair and its next attempt, the attempt is not lost.
func TestTheNextControllerTriesAgain(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.nodes(1)[0]
	restart, cordon := b.operation("restart-unit", map[string]string{"unit": "kubelet"}), b.operation("cordon", nil)
	b.escalating(restart, cordon, 2)
	first := b.control(nil)
	d := b.diagnose(node, b.set(restart, cordon), nil)
	b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown Verifying")
	first.kill()
	first.cancel()
	<-first.ended
	b.control(nil)
	b.waitFor("it is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
	if made := b.made(); len(made) != 2 {
		t.Errorf("%v", made)
	}
}

// made returns the repairs that the simulated agents have made, as node:operation.
func (b *bench) made() []string {
	b.agents.mu.Lock()
	defer b.agents.mu.Unlock()
	return slices.Clone(b.agents.made)
}
