package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func microNow() metav1.MicroTime { return metav1.NewMicroTime(time.Now()) }

// blocks returns an operation that waits until its run is ended.
func blocks(name string) map[string]func(context.Context, *operation.Call) (operation.Output, error) {
	return map[string]func(context.Context, *operation.Call) (operation.Output, error){
		name: func(ctx context.Context, _ *operation.Call) (operation.Output, error) {
			<-ctx.Done()
			return operation.Output{}, ctx.Err()
		},
	}
}

// decide writes the controller's decision on the waiting plan.
func decide(t *testing.T, r *rig, name, repair string, verb v1alpha1.RemediationVerb, outcome *v1alpha1.RemediationOutcome) {
	t.Helper()
	d := r.api.get(name)
	spec := &v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: repair}}}
	plan, err := policy.PlanOf(d, 3, repair, spec, []int{1})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := plan.Digest()
	if err != nil {
		t.Fatal(err)
	}
	r.api.person(types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, func(d *v1alpha1.Diagnosis) {
		d.Status.Remediations = []v1alpha1.Remediation{{ID: 3, PlanDigest: digest, Verb: verb, Reason: "Because", Time: microNow(), Outcome: outcome}}
	})
}

const awaits = "Running [] 1 Succeeded, 2 Succeeded, 3 AwaitingApproval"

func TestARepairOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		var during *v1alpha1.Checkpoint
		r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
			"mend": func(context.Context, *operation.Call) (operation.Output, error) {
				during = r.api.get("a").Status.Checkpoint
				return operation.Output{}, nil
			},
		}
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Second)
		want(t, r.api.get("a"), awaits)
		writes := r.api.written()
		time.Sleep(20 * time.Second) // it asks again, and nothing has changed
		if n := r.api.written() - writes; n > 1 {
			t.Errorf("%d writes", n)
		}
		decide(t, r, "a", "mend", v1alpha1.RemediationWait, nil)
		time.Sleep(time.Second)
		if r.ops.count("mend") != 0 {
			t.Fatal("repaired")
		}
		decide(t, r, "a", "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(time.Second)
		want(t, r.api.get("a"), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded")
		if during == nil || during.Intent == nil || during.Intent.ID != 3 || during.Intent.Operation != "mend" {
			t.Errorf("checkpoint during the repair: %+v", during)
		}
		s := r.api.get("a").Status
		if s.Checkpoint.Intent != nil || s.Action != "mend" || len(s.Remediations) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// The watch may deliver a decision before the response to the write that caused it.
func TestADecisionBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.api.before = func(d *v1alpha1.Diagnosis) {
			if summary(d) == awaits && len(d.Status.Remediations) == 0 {
				decide(t, r, d.Name, "mend", v1alpha1.RemediationRun, nil)
			}
		}
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Hour)
		want(t, r.api.get("a"), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded")
	})
}

func TestDecisions(t *testing.T) {
	for verb, state := range map[v1alpha1.RemediationVerb]string{v1alpha1.RemediationWouldRun: "WouldRun", v1alpha1.RemediationWithheld: "Withheld"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, objects(mends("mend")))
			r.make(nil)
			r.start()
			defer r.stop()
			r.api.add(person("a", "mends"))
			time.Sleep(time.Second)
			decide(t, r, "a", "mend", verb, nil)
			time.Sleep(time.Second)
			want(t, r.api.get("a"), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 "+state)
			if r.ops.count("mend") != 0 {
				t.Error("repaired")
			}
		})
	}
}

// A decision on another plan does not count.
func TestADecisionOfAnotherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Second)
		r.api.person(types.NamespacedName{Namespace: system, Name: "a"}, func(d *v1alpha1.Diagnosis) {
			d.Status.Remediations = []v1alpha1.Remediation{{ID: 3, PlanDigest: v1alpha1.Digest(strings.Repeat("0", 64)), Verb: v1alpha1.RemediationRun, Time: microNow()}}
		})
		time.Sleep(5 * time.Minute)
		want(t, r.api.get("a"), awaits)
	})
}

// No repair begins without the API server's consent, whatever was decided.
func TestNoRepairWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Second)
		r.api.setAway(true)
		decide(t, r, "a", "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(5 * time.Minute)
		if r.ops.count("mend") != 0 {
			t.Fatal("repaired")
		}
		r.api.setAway(false)
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded")
		if r.ops.count("mend") != 1 {
			t.Errorf("%d repairs", r.ops.count("mend"))
		}
	})
}

// The agent waits for a repair of the controller, and adopts its outcome.
func TestARepairOfTheController(t *testing.T) {
	for state, then := range map[v1alpha1.ResultState]string{
		v1alpha1.ResultSucceeded: "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded",
		v1alpha1.ResultFailed:    "Failed NoPathSucceeded [] 1 Succeeded, 2 Succeeded, 3 Failed",
		v1alpha1.ResultUnknown:   "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 Unknown",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, objects(mends("cordon")))
			r.make(nil)
			r.start()
			defer r.stop()
			r.api.add(person("a", "mends"))
			time.Sleep(time.Second)
			decide(t, r, "a", "cordon", v1alpha1.RemediationRun, nil)
			time.Sleep(time.Minute)
			began := microNow()
			decide(t, r, "a", "cordon", v1alpha1.RemediationRun, &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: began})
			time.Sleep(time.Minute)
			want(t, r.api.get("a"), awaits)
			ended := microNow()
			decide(t, r, "a", "cordon", v1alpha1.RemediationRun, &v1alpha1.RemediationOutcome{
				State: state, Message: "n7 cordoned", StartTime: began, CompletionTime: &ended, Values: map[string]string{"node": "n7"},
			})
			time.Sleep(time.Second)
			want(t, r.api.get("a"), then)
			last := r.api.get("a").Status.Results[2]
			if last.Message != "n7 cordoned" || last.Values["node"] != "n7" || last.Duration.Duration != time.Minute {
				t.Errorf("%+v", last)
			}
			// Its times are the node's: the repair ended when the node learned of it.
			if end := last.StartTime.Add(last.Duration.Duration); end.Before(ended.Time) || end.After(ended.Add(time.Second)) {
				t.Errorf("ended %s, for the node %s", ended, end)
			}
		})
	}
}

// A repair that an earlier run made, and that this node no longer remembers, is not repeated, even
// though the decision still allows it.
func TestTheDiskWasLost(t *testing.T) {
	for name, was := range map[string]func(*v1alpha1.DiagnosisStatus){
		"intended": func(s *v1alpha1.DiagnosisStatus) {
			s.Checkpoint.Intent = &v1alpha1.Intent{ID: 3, Operation: "mend", Time: microNow()}
		},
		"made": func(s *v1alpha1.DiagnosisStatus) {
			s.Results = []v1alpha1.Result{{ID: 3, Operation: "mend", State: v1alpha1.ResultSucceeded}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.conf.Gone = func(string) bool { return true }
				d := person("a", "mends")
				d.Status.Checkpoint = &v1alpha1.Checkpoint{Holder: "n7/other", Time: metav1.NewMicroTime(time.Now().Add(-time.Hour))}
				was(&d.Status)
				r.make(nil)
				r.start()
				defer r.stop()
				r.api.add(d)
				time.Sleep(time.Minute)
				want(t, r.api.get("a"), "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 Unknown")
				if r.ops.count("mend") != 0 {
					t.Error("repaired")
				}
			})
		})
	}
}

// Without a cluster each repair is reported as one that would run.
func TestObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.conf.Observe = true
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		synctest.Wait()
		want(t, r.api.only(t), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 WouldRun")
		if a := r.api.only(t).Status.Action; a != "mend (would)" {
			t.Error(a)
		}
	})
}

// The problem's state is reported even after the end while a repair is being verified, also across
// a restart, but no longer than that.
func TestTheProblemIsReported(t *testing.T) {
	for name, restarted := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) { theProblemIsReported(t, restarted) })
	}
}

func theProblemIsReported(t *testing.T, restarted bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		at := began()
		r.w.Observe(hung(at, problem.Firing), time.Now())
		synctest.Wait()
		name := r.api.only(t).Name
		decide(t, r, name, "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(time.Minute)
		verified := func(status metav1.ConditionStatus, reason string) {
			d := r.api.only(t)
			r.api.person(types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, func(d *v1alpha1.Diagnosis) {
				meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionVerified, Status: status, Reason: reason})
			})
			synctest.Wait()
		}
		verified(metav1.ConditionUnknown, v1alpha1.ReasonVerifying)
		if restarted {
			state, err := r.w.State()
			if err != nil {
				t.Fatal(err)
			}
			r.stop()
			r.make(state)
			r.start()
		}
		defer r.stop()
		// Another Diagnosis may repeat the repair, and depends on this one's problem.
		verified(metav1.ConditionFalse, v1alpha1.ReasonNotHelped)
		gone := time.Now()
		r.w.Observe(hung(gone, problem.Resolved), time.Now())
		time.Sleep(10 * time.Second)
		d := r.api.only(t)
		if p := d.Status.Problem; p == nil || p.State != v1alpha1.ProblemGone || !p.Since.Time.Equal(gone) {
			t.Errorf("%+v", p)
		}
		want(t, d, "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded")
		verified(metav1.ConditionTrue, v1alpha1.ReasonHelped)
		writes := r.api.written()
		r.w.Observe(hung(at, problem.Firing), time.Now())
		time.Sleep(time.Minute)
		if n := r.api.written() - writes; n != 0 {
			t.Errorf("%d writes after the verification", n)
		}
	})
}

// A repair is verified by the end of its problem, however many other runs end meanwhile.
func TestARepairToBeVerifiedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend"), looks()))
		r.conf.Keep = 1
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		synctest.Wait()
		name := r.api.only(t).Name
		decide(t, r, name, "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(11 * time.Minute)
		for _, other := range []string{"a", "b"} {
			r.api.add(person(other, "looks"))
			time.Sleep(time.Minute)
		}
		r.w.Observe(hung(time.Now(), problem.Resolved), time.Now())
		time.Sleep(10 * time.Second)
		if p := r.api.get(name).Status.Problem; p == nil || p.State != v1alpha1.ProblemGone {
			t.Errorf("%+v", p)
		}
		time.Sleep(26 * time.Hour) // nothing ever verifies it
		if left := r.w.List(); len(left) != 1 || left[0].Name != "b" {
			t.Errorf("%+v", left)
		}
	})
}

// The end of the problem is reported after a repair, even if the run can't make the next one.
func TestARepairToBeVerifiedWhoseRunCannotContinue(t *testing.T) {
	deleted := func(r *rig, _ string) {
		r.api.mu.Lock()
		defer r.api.mu.Unlock()
		r.api.objects = objects(looks())
	}
	for name, c := range map[string]struct {
		end  func(r *rig, name string)
		want string
	}{
		"its set was deleted":         {deleted, "Failed OperationSetNotFound [] 1 Succeeded, 2 Succeeded, 3 Succeeded"},
		"the controller has ended it": {lost, "Failed NodeLost [] 1 Succeeded, 2 Succeeded, 3 Succeeded, 4 AwaitingApproval"},
		"it was ended during a restart": {func(r *rig, name string) {
			r.restart(func() { lost(r, name) })
		}, "Failed NodeLost [] 1 Succeeded, 2 Succeeded, 3 Succeeded, 4 AwaitingApproval"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				twice := mends("mend")
				twice.Spec.AdjacencyList[3].To = []int32{4}
				twice.Spec.AdjacencyList = append(twice.Spec.AdjacencyList, v1alpha1.Node{ID: 4, Operation: "mend"})
				r := newRig(t, objects(twice))
				r.make(nil)
				r.start()
				defer func() { r.stop() }()
				r.w.Observe(hung(began(), problem.Firing), time.Now())
				time.Sleep(time.Second)
				name := r.api.only(t).Name
				decide(t, r, name, "mend", v1alpha1.RemediationRun, nil)
				time.Sleep(time.Second)
				want(t, r.api.get(name), "Running [] 1 Succeeded, 2 Succeeded, 3 Succeeded, 4 AwaitingApproval")
				c.end(r, name)
				time.Sleep(2 * time.Minute)
				want(t, r.api.get(name), c.want)
				r.w.Observe(hung(time.Now(), problem.Resolved), time.Now())
				time.Sleep(10 * time.Second)
				if p := r.api.get(name).Status.Problem; p == nil || p.State != v1alpha1.ProblemGone {
					t.Errorf("%+v", p)
				}
			})
		})
	}
}

// The same for a repair that the controller was making when the run ended.
func TestARepairOfTheControllerToBeVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("cordon")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		time.Sleep(time.Second)
		name := r.api.only(t).Name
		decide(t, r, name, "cordon", v1alpha1.RemediationRun, &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: microNow()})
		time.Sleep(time.Second)
		lost(r, name)
		time.Sleep(time.Minute)
		r.w.Observe(hung(time.Now(), problem.Resolved), time.Now())
		time.Sleep(10 * time.Second)
		if p := r.api.get(name).Status.Problem; p == nil || p.State != v1alpha1.ProblemGone {
			t.Errorf("%+v", p)
		}
	})
}

// lost ends a Diagnosis as the controller does.
func lost(r *rig, name string) {
	r.api.person(types.NamespacedName{Namespace: system, Name: name}, func(d *v1alpha1.Diagnosis) {
		d.Status.Phase = v1alpha1.PhaseFailed
		meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: "NodeLost", Message: "it is gone"})
	})
}

// read returns the report in the checkpoint of a Diagnosis' run.
func (r *rig) read(name string) *runner.Report {
	r.t.Helper()
	saved, err := runner.ReadSaved(worker.Checkpoints(r.dir), string(r.api.get(name).UID))
	if err != nil {
		r.t.Fatal(err)
	}
	return saved.Report
}

// The saved report of a run shows that it waited, and how the worker or somebody else ended it
// meanwhile.
func TestARunThatIsEndedWhileItWaits(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *rig)
		want string
	}{
		"its set was deleted": {func(r *rig) {
			r.api.mu.Lock()
			r.api.objects = objects(looks())
			r.api.mu.Unlock()
		}, "Failed OperationSetNotFound: there is no OperationSet mends"},
		"the controller has ended it": {func(r *rig) { lost(r, "a") }, "Failed NodeLost: it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.make(nil)
				r.start()
				defer r.stop()
				r.api.add(person("a", "mends"))
				time.Sleep(time.Minute)
				if w := r.read("a").Waiting; w == nil || w.ID != 3 || w.Reason != "AwaitingDecision" {
					t.Errorf("%+v", w)
				}
				c.end(r)
				time.Sleep(2 * time.Minute)
				rep := r.read("a")
				if got := fmt.Sprintf("%s %s: %s", rep.Phase, rep.Reason, rep.Message); got != c.want || rep.Waiting != nil || rep.Ended.IsZero() {
					t.Errorf("%s at %s, waiting %+v", got, rep.Ended, rep.Waiting)
				}
			})
		})
	}
}

// The saved report also shows how somebody else ended a run in the middle of an operation.
func TestARunThatIsEndedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.ops.do = blocks("look")
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		synctest.Wait()
		if id := r.read("a").Running; id != 1 {
			t.Fatalf("node %d runs", id)
		}
		lost(r, "a")
		synctest.Wait()
		rep := r.read("a")
		if got := fmt.Sprintf("%s %s: %s", rep.Phase, rep.Reason, rep.Message); got != "Failed NodeLost: it is gone" {
			t.Error(got)
		}
	})
}

// A status stays within its size limit, whatever runs find and others add.
func TestStatusIsBounded(t *testing.T) {
	testenv.OnlyInTestAll(t)
	synctest.Test(t, func(t *testing.T) {
		wide := set("wide")
		wide.Spec.AdjacencyList[0].To = nil
		for id := int32(1); id < 200; id++ {
			wide.Spec.AdjacencyList[id-1].To = []int32{id}
			wide.Spec.AdjacencyList = append(wide.Spec.AdjacencyList, v1alpha1.Node{ID: id, Operation: "look"})
		}
		r := newRig(t, objects(wide))
		r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
			"look": func(context.Context, *operation.Call) (operation.Output, error) {
				return operation.Output{Results: map[string]string{"found": strings.Repeat("<", 2000)}}, nil
			},
		}
		d := person("a", "wide")
		for i := range 8 {
			d.Status.Remediations = append(d.Status.Remediations, v1alpha1.Remediation{ID: int32(i), Message: strings.Repeat("<", 1024), Time: microNow(),
				Outcome: &v1alpha1.RemediationOutcome{Message: strings.Repeat("<", 1024), StartTime: microNow()}})
		}
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(d)
		time.Sleep(10 * time.Second)
		got := r.api.get("a")
		if got.Status.Phase != v1alpha1.PhaseSucceeded || len(got.Status.Results) != 199 || len(got.Status.Remediations) != 8 {
			t.Errorf("%s, %d results", got.Status.Phase, len(got.Status.Results))
		}
		if n := jsonSize(t, got.Status); n > v1alpha1.MaxStatusBytes || n < v1alpha1.MaxStatusBytes/2 {
			t.Errorf("%d bytes", n)
		}
		if !got.Status.Results[198].Truncated {
			t.Error("what was left out is not marked: " + fmt.Sprint(got.Status.Results[198]))
		}
	})
}
