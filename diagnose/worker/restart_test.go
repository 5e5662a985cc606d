package worker_test

import (
	"maps"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// mend3 is the intent to make the repair of the set mends.
func mend3() *v1alpha1.Intent {
	return &v1alpha1.Intent{ID: 3, Operation: "mend", Time: microNow()}
}

// restart ends the worker as the agent does, and starts another one.
func (r *rig) restart(meanwhile func()) {
	r.t.Helper()
	state, err := r.w.State()
	if err != nil {
		r.t.Fatal(err)
	}
	r.stop()
	meanwhile()
	r.make(state)
	r.start()
}

// killed returns a rig that starts with what this one has on its disk and in its API, as if the
// agent was killed now.
func (r *rig) killed(known *worker.Objects) *rig {
	r.t.Helper()
	next := newRig(r.t, known)
	if err := os.CopyFS(next.dir, os.DirFS(r.dir)); err != nil {
		r.t.Fatal(err)
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	next.api.all, next.api.uids, next.api.version = maps.Clone(r.api.all), r.api.uids, r.api.version
	return next
}

// mendsUntil adds a Diagnosis whose repair is allowed, and waits until it is in a state.
func (r *rig) mendsUntil(t *testing.T, is string) {
	t.Helper()
	r.api.add(person("a", "mends"))
	time.Sleep(time.Second)
	decide(t, r, "a", "mend", v1alpha1.RemediationRun, nil)
	time.Sleep(10 * time.Second)
	want(t, r.api.get("a"), is)
}

// A repair is not repeated if its run's checkpoint is gone, although the run begins before the agent
// knows what the API server has, and although the decision still allows it.
func TestALostCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		blocked string // the operation that is killed
		away    bool   // the watch is sooner than the first write
		was     string
	}{
		"begun, then a write": {"mend", false, "Running [] 1 Succeeded, 2 Succeeded, 3 Running"},
		"begun, then a watch": {"mend", true, "Running [] 1 Succeeded, 2 Succeeded, 3 Running"},
		"made, then a write":  {"is-a", false, "Running [] 1 Succeeded, 2 Succeeded, 3 Succeeded, 4 Running"},
		"made, then a watch":  {"is-a", true, "Running [] 1 Succeeded, 2 Succeeded, 3 Succeeded, 4 Running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mendsAndChecks := mends("mend")
				nodes := mendsAndChecks.Spec.AdjacencyList
				nodes[3].To = []int32{4}
				mendsAndChecks.Spec.AdjacencyList = append(nodes, v1alpha1.Node{ID: 4, Operation: "is-a"})
				r := newRig(t, objects(mendsAndChecks))
				r.ops.do = blocks(c.blocked)
				r.make(nil)
				r.start()
				defer r.stop()
				r.mendsUntil(t, c.was)
				next := r.killed(objects(mendsAndChecks))
				if err := os.Remove(runner.SavedPath(worker.Checkpoints(next.dir), string(r.api.get("a").UID))); err != nil {
					t.Fatal(err)
				}
				next.api.late = time.Minute
				if c.away {
					next.api.setAway(true)
					next.api.late = time.Second
				}
				next.make(nil)
				next.start()
				defer next.stop()
				time.Sleep(5 * time.Second)
				next.api.setAway(false)
				time.Sleep(5 * time.Minute)
				want(t, next.api.get("a"), "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 Unknown")
				if n := next.ops.count("mend"); n != 0 {
					t.Errorf("%d more repairs", n)
				}
			})
		})
	}
}

// If a checkpoint can't be read, the API server keeps the results and the intent that it has, so
// that nobody repeats the repair, and the end of the problem is reported.
func TestAnUnreadableCheckpoint(t *testing.T) {
	for name, intent := range map[string]*v1alpha1.Intent{"a repair was due": nil, "a repair was intended": mend3()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.make(nil)
				r.start()
				r.w.Observe(hung(began(), problem.Firing), time.Now())
				time.Sleep(time.Second)
				was := r.api.only(t)
				want(t, was, awaits)
				r.restart(func() {
					r.api.person(types.NamespacedName{Namespace: was.Namespace, Name: was.Name}, func(d *v1alpha1.Diagnosis) {
						d.Status.Checkpoint.Intent = intent
					})
					if err := os.Truncate(runner.SavedPath(worker.Checkpoints(r.dir), was.Name), 0); err != nil {
						t.Fatal(err)
					}
				})
				time.Sleep(time.Minute)
				for range 2 {
					d := r.api.only(t)
					want(t, d, "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 AwaitingApproval")
					if c := d.Status.Checkpoint; (c.Intent != nil) != (intent != nil) || !d.Status.StartTime.Equal(was.Status.StartTime) {
						t.Errorf("intent %+v, started at %s", c.Intent, d.Status.StartTime)
					}
					r.restart(func() {})
					time.Sleep(time.Minute)
				}
				defer r.stop()
				r.w.Observe(hung(time.Now(), problem.Resolved), time.Now())
				time.Sleep(10 * time.Second)
				if p := r.api.only(t).Status.Problem; (p.State == v1alpha1.ProblemGone) != (intent != nil) {
					t.Errorf("%+v", p)
				}
			})
		})
	}
}

// A run whose checkpoint can't be read does not start over if its set had a repair when the run
// began, even if it has none any more.
func TestAnUnreadableCheckpointOfASetThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Second)
		want(t, r.api.get("a"), awaits)
		r.restart(func() {
			r.api.objects = objects(mends("look"))
			if err := os.Truncate(runner.SavedPath(worker.Checkpoints(r.dir), string(r.api.get("a").UID)), 0); err != nil {
				t.Fatal(err)
			}
		})
		defer r.stop()
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 AwaitingApproval")
	})
}

// A repair that was interrupted by a kill is Unknown, even if the run can't be continued because
// its OperationSet is gone. If its checkpoint can't be read either, the intent stays.
func TestARepairIsInterruptedAndItsSetIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		readable bool
		want     string
	}{
		"its checkpoint can be read":   {true, "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 Unknown"},
		"its checkpoint can't be read": {false, "Unknown OutcomeUnknown [] 1 Succeeded, 2 Succeeded, 3 Running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.ops.do = blocks("mend")
				r.make(nil)
				r.start()
				defer r.stop()
				r.mendsUntil(t, "Running [] 1 Succeeded, 2 Succeeded, 3 Running")
				next := r.killed(objects(looks()))
				if !c.readable {
					if err := os.Truncate(runner.SavedPath(worker.Checkpoints(next.dir), string(r.api.get("a").UID)), 0); err != nil {
						t.Fatal(err)
					}
				}
				next.make(nil)
				next.start()
				defer next.stop()
				time.Sleep(time.Minute)
				d := next.api.get("a")
				want(t, d, c.want)
				if !c.readable {
					if d.Status.Checkpoint.Intent == nil {
						t.Error("the intent is gone")
					}
					return
				}
				if res := d.Status.Result(3); res.Reason != "Interrupted" || res.StartTime == nil || d.Status.Checkpoint.Intent != nil {
					t.Errorf("%+v, %+v", res, d.Status.Checkpoint)
				}
				rep := next.read("a")
				if rep.Phase != v1alpha1.PhaseUnknown || len(rep.Records) != 3 || rep.Records[2].State != v1alpha1.ResultUnknown {
					t.Errorf("saved: %+v", rep)
				}
			})
		})
	}
}

// An agent may have begun a repair of a Diagnosis that this one takes over and can't run: its
// outcome is Unknown.
func TestARepairOfAnotherAgentIsUnknown(t *testing.T) {
	for name, change := range map[string]func(d *v1alpha1.Diagnosis){
		"its set is gone": func(d *v1alpha1.Diagnosis) { d.Spec.OperationSet = "none" },
		"it is cancelled": func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.conf.Gone = func(string) bool { return true }
				d := person("a", "mends")
				d.Status.Checkpoint = &v1alpha1.Checkpoint{Holder: "n7/other", Time: microNow(), Intent: mend3()}
				change(d)
				r.make(nil)
				r.start()
				defer r.stop()
				r.api.add(d)
				time.Sleep(time.Minute)
				d = r.api.get("a")
				want(t, d, "Unknown OutcomeUnknown [] ")
				if d.Status.Checkpoint.Intent == nil {
					t.Error("the intent is gone")
				}
			})
		})
	}
}

// A Diagnosis that was deleted after its end and created again under its name continues after a
// restart, with the parameters with which it began.
func TestOneMadeAnewGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.conf.PodUID = func(string, string) string { return "pod-1" }
		r.api.uids = 8 // the second one's file comes before the first one's
		r.make(nil)
		r.start()
		d := person("a", "looks")
		d.Spec.PodReference = &v1alpha1.PodReference{Name: "db-0"}
		r.api.add(d.DeepCopy())
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), wellDone)
		r.api.remove(types.NamespacedName{Namespace: system, Name: "a"})
		time.Sleep(time.Minute)
		r.ops.do = blocks("is-b")
		r.api.add(d)
		time.Sleep(10 * time.Second)
		r.restart(func() {
			r.ops.do = nil
			r.conf.PodUID = func(string, string) string { return "pod-2" }
		})
		defer func() { r.stop() }()
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), wellDone)
		if s := r.w.Stats(); s.Taken != 0 || len(r.reported()) != 2 || r.ops.count("look") != 2 {
			t.Errorf("%+v, %d reported, %d looks", s, len(r.reported()), r.ops.count("look"))
		}
	})
}

// After a restart a Diagnosis that has begun is not reported as one that has not: the controller
// would cancel it as such.
func TestABegunDiagnosisStaysRunning(t *testing.T) {
	for was, want := range map[string]string{"Waiting": "Waiting", "AgentSilent": "Running"} {
		t.Run(was, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(mends("mend")))
				r.make(nil)
				r.start()
				r.api.add(person("a", "mends"))
				time.Sleep(time.Second)
				r.restart(func() {
					r.api.mu.Lock()
					r.api.objects = &worker.Objects{} // so it can't continue yet
					r.api.mu.Unlock()
					r.api.person(types.NamespacedName{Namespace: system, Name: "a"}, func(d *v1alpha1.Diagnosis) {
						meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete).Reason = was
					})
				})
				defer r.stop()
				time.Sleep(time.Second)
				d := r.api.get("a")
				c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete)
				if summary(d) != awaits || c.Reason != want {
					t.Errorf("%s, %+v", summary(d), c)
				}
			})
		})
	}
}

// If more transitions are replayed than may wait for their pods, the oldest are handled without
// their pods. None is lost: a problem that ended stays so, and its repair is withheld.
func TestReplayOfMoreThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		firing, ended := hung(began(), problem.Firing), hung(began(), problem.Resolved)
		r.w.Observe(firing, time.Now())
		time.Sleep(10 * time.Second)
		r.w.Observe(ended, time.Now())
		time.Sleep(10 * time.Second)
		r.stop()

		r.conf.PodsKnown = func(time.Time) bool { return false }
		r.conf.Pod = func(string) *trigger.Pod { return nil }
		r.make(nil)
		other := func(group, pod string) {
			of := hung(began(), problem.Firing)
			of[0].Problem.Rule, of[0].Problem.Group, of[0].Problem.Pod = "other", group, pod
			r.w.Observe(of, time.Now())
		}
		other("first", "pod-1")
		r.w.Observe(firing, time.Now())
		for i := range 1000 {
			other(strconv.Itoa(i), "")
		}
		r.w.Observe(ended, time.Now())
		r.start()
		defer r.stop()
		time.Sleep(20 * time.Second)
		if p := r.api.only(t).Status.Problem; p == nil || p.State != v1alpha1.ProblemGone {
			t.Errorf("the problem is %+v, want it Gone", p)
		}
		if s := r.w.Stats(); s.Dropped["unknown"] != 0 {
			t.Errorf("dropped %v", s.Dropped)
		}
	})
}
