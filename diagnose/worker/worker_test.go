package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
)

const wellDone = "Succeeded PathSucceeded IsB [1 3] 1 Succeeded, 2 Refuted, 3 Succeeded"

func TestAProblemIsDiagnosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.make(nil)
		r.start()
		defer r.stop()
		at := began()
		r.w.Observe(hung(at, problem.Firing), time.Now())
		synctest.Wait()
		d := r.api.only(t)
		want(t, d, wellDone)
		if d.Labels[v1alpha1.LabelTrigger] != "hung" || d.Status.Subject != "pg[811]" || d.Spec.Parameters["pid"] != "811" ||
			d.Status.ObservedGeneration != 1 || d.Status.Problem == nil || d.Status.Problem.State != v1alpha1.ProblemLasts {
			t.Errorf("%+v\n%+v", d, d.Status.Problem)
		}
		ended := r.reported()
		if len(ended) != 1 || ended[0].ID != d.Name || ended[0].Status.Verdict.Reason != "IsB" || ended[0].After < 0 {
			t.Fatalf("%+v", ended)
		}
		if saved, err := runner.ReadSaved(worker.Checkpoints(r.dir), d.Name); err != nil || saved.Parameters["node"] != "n7" || !worker.Taken(r.dir, d.Name) {
			t.Errorf("%+v, %v", saved, err)
		}
		listed := r.w.List()
		if len(listed) != 1 || listed[0].ID != d.Name || listed[0].Trigger != "hung" || listed[0].Subject != "pg[811]" ||
			listed[0].Phase != v1alpha1.PhaseSucceeded || listed[0].Ended.IsZero() || listed[0].OperationSet != "looks" {
			t.Errorf("listed %+v", listed)
		}
		// Reported again, and for another subject within the episode: nothing is created.
		r.w.Observe(hung(at, problem.Firing), time.Now())
		synctest.Wait()
		if _, made := r.api.known(); r.ops.count("look") != 1 || made != 1 {
			t.Errorf("%d runs, %d made", r.ops.count("look"), made)
		}
		s := r.w.Stats()
		if s.Made != 1 || s.Ended[v1alpha1.PhaseSucceeded] != 1 || s.Triggers["hung"].Started != 1 || s.Writes["taken"] == 0 || s.Running+s.Waiting+s.Unreported != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// An agent may be killed at any moment: what it observed since its state was saved is observed
// again, and results in exactly one Diagnosis, which runs to its end.
func TestKilledAndReplayed(t *testing.T) {
	stages := map[string]func(r *rig, at time.Time){
		"before it was observed": func(*rig, time.Time) {},
		"before it was on the disk": func(r *rig, at time.Time) {
			r.w.Observe(hung(at, problem.Firing), time.Now())
		},
		"before it was made": func(r *rig, at time.Time) {
			r.api.setAway(true)
			r.start()
			r.w.Observe(hung(at, problem.Firing), time.Now())
			synctest.Wait()
			r.stop()
			r.api.setAway(false)
		},
		"after all": func(r *rig, at time.Time) {
			r.start()
			r.w.Observe(hung(at, problem.Firing), time.Now())
			synctest.Wait()
			r.stop()
		},
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				r.make(nil)
				at := began()
				state, err := r.w.State()
				if err != nil {
					t.Fatal(err)
				}
				stage(r, at)
				r.make(state)
				r.w.Observe(hung(at, problem.Firing), time.Now())
				r.start()
				defer r.stop()
				time.Sleep(time.Minute)
				want(t, r.api.only(t), wellDone)
				_, made := r.api.known()
				if n := r.ops.count("look"); n != 1 || made != 1 || len(r.reported()) != 1 {
					t.Errorf("%d runs, %d made, %d reported", n, made, len(r.reported()))
				}
			})
		})
	}
}

// What is wanted and not yet on disk is in the state.
func TestStateHasWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.make(nil)
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		state, err := r.w.State()
		if err != nil {
			t.Fatal(err)
		}
		r.make(state) // nothing is observed again
		r.start()
		defer r.stop()
		synctest.Wait()
		want(t, r.api.only(t), wellDone)
	})
}

// A newer version may have added to the state, and triggers may remember in a format that this one
// can't read: what is wanted and not on disk is still created.
func TestStateOfANewerVersion(t *testing.T) {
	for _, trigger := range []string{`{"version":2,"streams":{}}`, `{"version":1,"later":{"is":[1]}}`} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, objects(looks()))
			r.make(nil)
			r.w.Observe(hung(began(), problem.Firing), time.Now())
			state, err := r.w.State()
			var of map[string]json.RawMessage
			if err == nil {
				err = json.Unmarshal(state, &of)
			}
			if err != nil {
				t.Fatal(err)
			}
			of["trigger"], of["later"] = json.RawMessage(trigger), json.RawMessage(`true`)
			if state, err = json.Marshal(of); err != nil {
				t.Fatal(err)
			}
			r.make(state)
			r.start()
			defer r.stop()
			synctest.Wait()
			want(t, r.api.only(t), wellDone)
		})
	}
}

// Without a state the whole journal is replayed: old problems are not diagnosed.
func TestLongAgo(t *testing.T) {
	r := newRig(t, objects(looks()))
	for _, state := range []json.RawMessage{nil, json.RawMessage(`{`), json.RawMessage(`{"trigger":{"version":99}}`)} {
		r.make(state)
		old := time.Now().Add(-time.Hour)
		r.w.Observe(hung(old, problem.Firing), old)
		if s := r.w.Stats(); s.Dropped["stale"] != 1 || s.Waiting != 0 {
			t.Errorf("%s: %+v", state, s)
		}
	}
}

// While triggers are unknown, also across a restart, a new problem does not become an old one.
func TestLongAgoBeforeTriggersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := objects(looks())
		r := newRig(t, &worker.Objects{})
		r.make(nil)
		for group, began := range map[string]time.Time{"old": time.Now().Add(-time.Hour), "new": time.Now()} {
			of := hung(began, problem.Firing)
			of[0].Problem.Group = group
			r.w.Observe(of, began)
		}
		time.Sleep(time.Hour)
		state, err := r.w.State()
		if err != nil {
			t.Fatal(err)
		}
		r.api.objects = known
		r.make(state)
		r.start()
		defer r.stop()
		time.Sleep(time.Minute)
		if s := r.w.Stats(); s.Made != 1 || s.Dropped["stale"] != 1 {
			t.Errorf("%d made, dropped %v, want only the old problem dropped", s.Made, s.Dropped)
		}
	})
}

// An unreachable API server stops no run of own triggers' Diagnoses, even across a restart. They
// are reported when it is back.
func TestTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.api.setAway(true)
		r.make(nil)
		r.start()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		synctest.Wait()
		if ended := r.reported(); len(ended) != 1 || ended[0].Status.Verdict.Reason != "IsB" {
			t.Errorf("%+v", ended)
		}
		time.Sleep(10 * time.Minute)
		r.stop()
		r.make(nil)
		r.start()
		defer r.stop()
		time.Sleep(time.Minute)
		if n, _ := r.api.known(); n != 0 || r.w.Stats().Unreported != 1 {
			t.Errorf("%d known, %+v", n, r.w.Stats())
		}
		r.api.setAway(false)
		time.Sleep(time.Minute)
		want(t, r.api.only(t), wellDone)
		if r.ops.count("look") != 1 || len(r.reported()) != 1 {
			t.Errorf("%d runs, %d reported", r.ops.count("look"), len(r.reported()))
		}
	})
}

func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.api.refuse = errors.New("admission webhook denied the request")
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		time.Sleep(time.Hour)
		if s := r.w.Stats(); s.Dropped["refused"] != 1 || s.Unreported != 0 || s.Ended[v1alpha1.PhaseSucceeded] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Nobody decides on a repair of a Diagnosis that the store has rejected: the run ends without it,
// and frees its slot.
func TestRefusedForGoodBeforeARepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.conf.MaxOpen = 1
		r.api.refuse = errors.New("exceeded quota")
		r.make(nil)
		r.start()
		defer r.stop()
		for _, pid := range []string{"811", "812"} {
			of := hung(began(), problem.Firing)
			of[0].Problem.Group = pid
			r.w.Observe(of, time.Now())
			time.Sleep(time.Hour)
		}
		ended := r.reported()
		if s := r.w.Stats(); len(ended) != 2 || s.Ended[v1alpha1.PhaseSucceeded] != 2 || r.ops.count("mend") != 0 {
			t.Fatalf("%+v", s)
		}
		if node := ended[1].Status.Results[2]; node.State != v1alpha1.ResultWithheld || node.Reason != "NotStored" {
			t.Errorf("%+v", node)
		}
	})
}

func TestDeletedAndMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		synctest.Wait()
		d := r.api.only(t)
		name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
		r.api.remove(name)
		synctest.Wait()
		time.Sleep(time.Hour)
		if _, err := os.Stat(filepath.Join(worker.Checkpoints(r.dir), d.Name+".checkpoint")); err != nil {
			t.Errorf("what has ended is not kept: %v", err)
		}
		again := d.DeepCopy()
		again.Status = v1alpha1.DiagnosisStatus{}
		r.api.add(again)
		time.Sleep(time.Minute)
		want(t, r.api.only(t), wellDone)
		if n := r.ops.count("look"); n != 2 {
			t.Errorf("ran %d times", n)
		}
		// The worker was not notified of this deletion; it finds the object gone when it writes to
		// it.
		if s := r.w.Stats(); s.Waiting+s.Running+s.Unreported != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// If a Diagnosis is deleted while it runs, its run ends, and its evidence is removed.
func TestDeletedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.ops.do = blocks("is-b")
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		synctest.Wait()
		id := string(r.api.get("a").UID)
		if ids, err := runner.SavedIDs(worker.Checkpoints(r.dir)); err != nil || len(ids) != 1 {
			t.Errorf("%v, %v", ids, err)
		}
		r.api.remove(types.NamespacedName{Namespace: system, Name: "a"})
		time.Sleep(time.Minute)
		if ids, err := runner.SavedIDs(worker.Checkpoints(r.dir)); err != nil || len(ids) != 0 || worker.Taken(r.dir, id) {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.ops.do = blocks("look")
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		waits := person("b", "looks")
		waits.Spec.Cancel = true
		r.api.add(waits)
		time.Sleep(time.Second)
		if d := r.api.get("a"); d.Status.Phase != v1alpha1.PhaseRunning || d.Status.Checkpoint == nil || d.Status.Checkpoint.Running == nil || *d.Status.Checkpoint.Running != 1 {
			t.Errorf("%+v", d.Status)
		}
		r.api.person(types.NamespacedName{Namespace: system, Name: "a"}, func(d *v1alpha1.Diagnosis) { d.Spec.Cancel = true })
		time.Sleep(time.Second)
		want(t, r.api.get("a"), string(v1alpha1.PhaseCancelled)+" "+v1alpha1.ReasonCancelled+" [] ")
		want(t, r.api.get("b"), string(v1alpha1.PhaseCancelled)+" "+v1alpha1.ReasonCancelled+" [] ")
	})
}

func TestRefusedDiagnoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := set("bad", v1alpha1.Node{ID: 1, Operation: "no-such"})
		r := newRig(t, objects(looks(), bad))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("unknown", "none"))
		r.api.add(person("unready", "bad"))
		foreign := person("foreign", "looks")
		foreign.Namespace = "shop"
		r.api.add(foreign)
		other := person("other", "looks")
		other.Spec.NodeName = "n8"
		r.api.add(other)
		time.Sleep(time.Second)
		want(t, r.api.get("unknown"), "Failed OperationSetNotFound [] ")
		want(t, r.api.get("unready"), "Failed OperationSetNotReady [] ")
		want(t, r.api.get("other"), " [] ")
		if c := r.api.get("unready").Status.Conditions[0]; !strings.Contains(c.Message, `named "no-such"`) {
			t.Errorf("%+v", c)
		}
		want(t, r.api.in("shop", "foreign"), "Failed NotAllowed [] ")
	})
}

// A Diagnosis outside the system namespace only examines a pod of its namespace, whatever it says,
// and runs only operations made for tenants.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenants := set("tenants", v1alpha1.Node{ID: 1, Operation: "pod-look"})
		known := objects(looks(), tenants)
		known.Operations = []*v1alpha1.Operation{{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-look"},
			Spec:       v1alpha1.OperationSpec{TenantSafe: true, Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "look"}}},
		}}
		r := newRig(t, known)
		var asked int
		r.conf.TenantPod = func(_ context.Context, d *v1alpha1.Diagnosis) (tenancy.Pod, error) {
			asked++
			switch {
			case asked == 1:
				return tenancy.Pod{}, worker.ErrAway
			case d.Spec.PodReference.Name == "none":
				return tenancy.Pod{}, worker.ErrGone
			}
			return tenancy.Pod{Namespace: d.Namespace, Name: d.Spec.PodReference.Name, UID: "pod-1", Node: "n7", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}, nil
		}
		given := r.looked()
		r.make(nil)
		r.start()
		defer r.stop()
		tenant := func(name, operationSet, pod string) {
			d := person(name, operationSet)
			d.Namespace, d.Spec.PodReference = "shop", &v1alpha1.PodReference{Name: pod}
			d.CreationTimestamp = metav1.Now()
			r.api.add(d)
		}
		tenant("good", "tenants", "db-0")
		tenant("wide", "looks", "db-0")
		tenant("lost", "tenants", "none")
		tenant("unknown", "no-such", "db-0")
		nothing := person("nothing", "tenants")
		nothing.Namespace = "shop"
		r.api.add(nothing)
		time.Sleep(time.Minute)
		want(t, r.api.in("shop", "good"), "Succeeded PathSucceeded [1] 1 Succeeded")
		if given["podUID"] != "pod-1" {
			t.Errorf("%v", given)
		}
		want(t, r.api.in("shop", "wide"), "Failed NotAllowed [] ")
		want(t, r.api.in("shop", "lost"), "Failed PodNotFound [] ")
		want(t, r.api.in("shop", "unknown"), "Failed OperationSetNotFound [] ")
		want(t, r.api.in("shop", "nothing"), "Failed NotAllowed [] ")
	})
}

// looked returns a map that gets the parameters with which the operation look runs.
func (r *rig) looked() operation.Values {
	given := operation.Values{}
	r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
		"look": func(_ context.Context, c *operation.Call) (operation.Output, error) {
			clear(given)
			maps.Copy(given, c.Parameters)
			return operation.Output{}, nil
		},
	}
	return given
}

// A Diagnosis gets its pod's UID, unless it names the network to examine or its trigger has left the
// UID out: a UID takes precedence.
func TestPodUIDIsAdded(t *testing.T) {
	for _, c := range []struct{ netns, leftOut, want string }{{"", "", "pod-1"}, {"4026531840", "", ""}, {"", "pod-1", ""}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, objects(looks()))
			r.conf.PodUID = func(string, string) string { return "pod-1" }
			given := r.looked()
			r.make(nil)
			r.start()
			defer r.stop()
			d := person("a", "looks")
			d.Spec.PodReference = &v1alpha1.PodReference{Name: "db-0"}
			if c.netns != "" {
				d.Spec.Parameters = v1alpha1.Parameters{"netns": c.netns}
			}
			if c.leftOut != "" {
				d.Annotations = map[string]string{trigger.AnnotationPodUID: c.leftOut}
			}
			r.api.add(d)
			time.Sleep(time.Minute)
			if given["podUID"] != c.want || given["podName"] != "db-0" {
				t.Errorf("%+v: %v", c, given)
			}
		})
	}
}

// Unknown sets are waited for, but not forever.
func TestObjectsComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &worker.Objects{})
		r.make(nil)
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		time.Sleep(time.Minute)
		r.api.mu.Lock()
		r.api.objects = objects(looks())
		h := r.api.h
		r.api.mu.Unlock()
		h.ObjectsChanged()
		time.Sleep(10 * time.Second)
		want(t, r.api.get("a"), wellDone)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &worker.Objects{})
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), "Pending [] ")
		time.Sleep(2 * time.Minute)
		want(t, r.api.get("a"), "Failed OperationSetNotFound [] ")
	})
}

// A Diagnosis that another agent has is left to it while that agent is alive, whatever its clock
// says.
func TestAnotherAgentHasIt(t *testing.T) {
	for name, wrote := range map[string]time.Duration{"now": 0, "long ago": -time.Hour, "in the future": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				var gone atomic.Bool
				r.conf.Gone = func(holder string) bool { return holder == "n7/other" && gone.Load() }
				r.make(nil)
				r.start()
				defer r.stop()
				d := person("a", "looks")
				d.Status.Checkpoint = &v1alpha1.Checkpoint{Holder: "n7/other", Time: metav1.NewMicroTime(time.Now().Add(wrote))}
				r.api.add(d)
				time.Sleep(3 * time.Hour)
				if r.ops.count("look") != 0 || r.api.get("a").Status.Checkpoint.Holder != "n7/other" {
					t.Errorf("ran %d times, held by %s", r.ops.count("look"), r.api.get("a").Status.Checkpoint.Holder)
				}
				gone.Store(true)
				time.Sleep(15 * time.Second)
				want(t, r.api.get("a"), wellDone)
			})
		})
	}
}

// A Diagnosis that another agent took over is left to that agent: this one repairs nothing and
// reports nothing more. If nobody has it any more, this one continues.
func TestAnotherAgentTookItOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(time.Minute)
		name := types.NamespacedName{Namespace: system, Name: "a"}
		own := r.api.get("a").Status.Checkpoint.Holder
		r.api.person(name, func(d *v1alpha1.Diagnosis) { d.Status.Checkpoint.Holder = "n7/other" })
		time.Sleep(time.Minute)
		decide(t, r, "a", "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(10 * time.Minute)
		if d := r.api.get("a"); r.ops.count("mend") != 0 || d.Status.Checkpoint.Holder != "n7/other" {
			t.Errorf("%d repairs, held by %s", r.ops.count("mend"), d.Status.Checkpoint.Holder)
		}
		r.api.person(name, func(d *v1alpha1.Diagnosis) { d.Status.Checkpoint = nil })
		time.Sleep(2 * time.Minute)
		if d := r.api.get("a"); r.ops.count("mend") != 1 || d.Status.Phase != v1alpha1.PhaseSucceeded || d.Status.Checkpoint.Holder != own {
			t.Errorf("%d repairs, %s, held by %s", r.ops.count("mend"), d.Status.Phase, d.Status.Checkpoint.Holder)
		}
	})
}

// The status of a running Diagnosis is written at most every five seconds.
func TestWriteRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.ops.do = blocks("is-a")
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "looks"))
		time.Sleep(29 * time.Second)
		n := r.api.written()
		if n > 5 {
			t.Errorf("%d writes", n)
		}
	})
}

// A run that ends soon after its Diagnosis was created is written once; a longer one reports within
// a second that it runs; and one that waits for a decision asks for it at once.
func TestFirstWrite(t *testing.T) {
	for _, c := range []struct {
		name     string
		takes    time.Duration
		after    time.Duration
		writes   int
		complete bool
	}{
		{"a run that ends", 300 * time.Millisecond, 10 * time.Second, 1, true},
		{"a long run", 30 * time.Second, 1500 * time.Millisecond, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
					"look": func(ctx context.Context, _ *operation.Call) (operation.Output, error) {
						select {
						case <-time.After(c.takes):
						case <-ctx.Done():
						}
						return operation.Output{}, ctx.Err()
					},
				}
				r.make(nil)
				r.start()
				defer r.stop()
				r.w.Observe(hung(began(), problem.Firing), time.Now())
				time.Sleep(c.after)
				d := r.api.only(t)
				complete := apimeta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionComplete)
				if n := r.api.written(); n != c.writes || complete != c.complete {
					t.Errorf("%d writes, complete %v, status %+v", n, complete, d.Status)
				}
			})
		})
	}
	t.Run("a decision is awaited", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, objects(mends("mend")))
			r.make(nil)
			r.start()
			defer r.stop()
			r.w.Observe(hung(began(), problem.Firing), time.Now())
			synctest.Wait()
			if d := r.api.only(t); r.api.written() != 1 || len(d.Status.Results) == 0 {
				t.Errorf("%d writes, status %+v", r.api.written(), d.Status)
			}
		})
	})
}

// A run that reached its repair before the API server had its Diagnosis asks for the decision once
// it has, with one write.
func TestFirstWriteOfALateDiagnosis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.setAway(true)
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		time.Sleep(1500 * time.Millisecond)
		r.api.setAway(false)
		time.Sleep(3 * time.Second)
		if d := r.api.only(t); r.api.written() != 1 || len(d.Status.Results) != 3 || d.Status.Results[2].Reason != "AwaitingDecision" {
			t.Errorf("%d writes, status %+v", r.api.written(), d.Status)
		}
	})
}

// Late news from before the agent claimed the Diagnosis does not cause a write of an unchanged
// status.
func TestNothingIsWrittenForLateNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		time.Sleep(time.Second + 123) // times have more digits than the API stores
		d := person("a", "mends")
		r.api.add(d)
		unclaimed := r.api.get("a")
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), awaits)
		was := asStored(r.api.get("a"))
		r.api.h.Diagnosis(unclaimed)
		time.Sleep(time.Minute)
		if is := r.api.get("a"); !equality.Semantic.DeepEqual(was.Status, is.Status) {
			t.Errorf("status was\n%+v\nand is\n%+v", was.Status.Checkpoint, is.Status.Checkpoint)
		}
	})
}

// It is not written while nothing changes, for example while it waits for an approval.
func TestNothingIsWrittenWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend")))
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "mends"))
		time.Sleep(2 * time.Minute)
		n := r.api.written()
		want(t, r.api.get("a"), awaits)
		time.Sleep(24 * time.Hour)
		if more := r.api.written() - n; more != 0 {
			t.Errorf("%d writes in a day in which nothing has changed", more)
		}
		decide(t, r, "a", "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(time.Minute)
		want(t, r.api.get("a"), "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded")
	})
}

func TestEndedRunsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.conf.Keep = 2
		r.make(nil)
		r.start()
		defer r.stop()
		for _, name := range []string{"a", "b", "c", "d"} {
			r.api.add(person(name, "looks"))
			time.Sleep(time.Minute)
			want(t, r.api.get(name), wellDone)
		}
		time.Sleep(2 * time.Minute)
		ids, err := runner.SavedIDs(worker.Checkpoints(r.dir))
		if err != nil || strings.Join(ids, " ") != string(r.api.get("c").UID+" "+r.api.get("d").UID) {
			t.Errorf("%v, %v", ids, err)
		}
		if files, _ := filepath.Glob(filepath.Join(r.dir, "taken", "*")); len(files) != 2 {
			t.Errorf("%v", files)
		}
	})
}

func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.conf.MaxOpen = 1
		r.ops.do = blocks("look")
		r.make(nil)
		r.start()
		defer r.stop()
		at := began()
		r.w.Observe(hung(at, problem.Firing), time.Now())
		r.w.Observe(hung(at, problem.Resolved), time.Now())
		r.w.Observe(hung(at.Add(time.Second), problem.Firing), time.Now().Add(2*time.Hour))
		synctest.Wait()
		if s := r.w.Stats(); s.Dropped["full"] != 1 || s.Running != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Two processes never run diagnoses in the same folder.
func TestTheFolderIsLocked(t *testing.T) {
	dir := t.TempDir()
	unlock, err := worker.Lock(dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	_, err = worker.Lock(dir, "second")
	locked, ok := errors.AsType[*worker.LockedError](err)
	if !ok || locked.Who != "first" || locked.Dir != dir {
		t.Errorf("%v", err)
	}
	unlock()
	unlock, err = worker.Lock(dir, "2")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if raw, err := os.ReadFile(filepath.Join(dir, "lock")); err != nil || string(raw) != "2" {
		t.Errorf("%q, %v", raw, err)
	}
}

// A full disk stops no run, and does not make memory grow.
func TestTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.conf.Keep = 1
		for _, name := range []string{"taken", "checkpoints", "artifacts"} { // so they can't be folders
			if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.make(nil)
		r.start()
		defer r.stop()
		for _, name := range []string{"a", "b", "c"} {
			r.api.add(person(name, "looks"))
			time.Sleep(time.Minute)
			want(t, r.api.get(name), wellDone)
		}
		if s := r.w.Stats(); s.Unsaved == 0 || s.Ended[v1alpha1.PhaseSucceeded] != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// The known pods may be older than a problem's pod: the problem waits until newer ones are known,
// and later problems wait too, so that triggers see them in order.
func TestAPodThatIsNewerThanWhatIsKnown(t *testing.T) {
	for name, there := range map[string]bool{"it is there": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				r.api.objects.Triggers[0].Spec.SourceTemplate.ProblemTemplate.Namespaces = []string{"shop"}
				var mu sync.Mutex
				listed, known := time.Now(), map[string]bool{"pod-0": true, "pod-2": true}
				r.conf.PodsKnown = func(at time.Time) bool {
					mu.Lock()
					defer mu.Unlock()
					return !listed.Before(at)
				}
				r.conf.Pod = func(uid string) *trigger.Pod {
					mu.Lock()
					defer mu.Unlock()
					if !known[uid] {
						return nil
					}
					return &trigger.Pod{Namespace: "shop", Name: "db-" + uid, UID: uid, Node: "n7"}
				}
				r.make(nil)
				r.start()
				defer r.stop()
				observe := func(uid, group string) {
					of := hung(began(), problem.Firing)
					of[0].Problem.Pod, of[0].Problem.Group = uid, group
					r.w.Observe(of, time.Now())
				}
				made := func() int {
					n, _ := r.api.known()
					return n
				}
				time.Sleep(time.Second)
				observe("pod-0", "1")
				time.Sleep(time.Second)
				if made() != 1 {
					t.Fatalf("%d are made of a pod that is known", made())
				}
				observe("pod-1", "2")
				observe("pod-2", "3")
				time.Sleep(5 * time.Second)
				if made() != 1 {
					t.Fatal("it did not wait")
				}
				mu.Lock()
				listed, known["pod-1"] = time.Now(), there
				mu.Unlock()
				time.Sleep(time.Second)
				unknown := r.w.Stats().Triggers["hung"].Withheld[trigger.WithheldUnknownPod]
				if there && (made() != 3 || unknown != 0) || !there && (made() != 2 || unknown != 1) {
					t.Errorf("%d are made, %d withheld", made(), unknown)
				}
			})
		})
	}
}

// The pod source may not know a pod yet: for two minutes, that is not final.
func TestATenantsPodThatIsNotKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := tenantsRig(t, 0)
		knows := r.conf.TenantPod
		var there atomic.Bool
		r.conf.TenantPod = func(ctx context.Context, d *v1alpha1.Diagnosis) (tenancy.Pod, error) {
			switch {
			case d.Name == "refused":
				return tenancy.Pod{}, fmt.Errorf("%w: kubelet refuses", worker.ErrLater)
			case d.Name == "never" || !there.Load():
				return tenancy.Pod{}, fmt.Errorf("%w: %w", worker.ErrLater, worker.ErrGone)
			}
			return knows(ctx, d)
		}
		r.make(nil)
		r.start()
		defer r.stop()
		for _, name := range []string{"soon", "never", "refused"} {
			r.api.add(ofTenant("shop", name))
		}
		time.Sleep(30 * time.Second)
		for _, name := range []string{"soon", "never", "refused"} {
			if d := r.api.in("shop", name); d.Status.Phase == v1alpha1.PhaseFailed {
				t.Errorf("%s: %+v", name, d.Status)
			}
		}
		there.Store(true)
		time.Sleep(30 * time.Second)
		want(t, r.api.in("shop", "soon"), "Succeeded PathSucceeded [1] 1 Succeeded")
		time.Sleep(2 * time.Minute)
		want(t, r.api.in("shop", "never"), "Failed PodNotFound [] ")
		want(t, r.api.in("shop", "refused"), "Failed NotAllowed [] ")
	})
}

// At a start problems wait for the pods of the node, also across another restart, but not for an
// unreachable API server.
func TestPodsComeLater(t *testing.T) {
	for name, comes := range map[string]bool{"they come": true, "they don't": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				r.api.objects.Triggers[0].Spec.SourceTemplate.ProblemTemplate.Namespaces = []string{"shop"}
				var known atomic.Bool
				r.conf.PodsKnown = func(time.Time) bool { return known.Load() }
				r.conf.Pod = func(uid string) *trigger.Pod {
					if !known.Load() {
						return nil
					}
					return &trigger.Pod{Namespace: "shop", Name: "db-0", UID: uid, Node: "n7"}
				}
				r.make(nil)
				of := hung(began(), problem.Firing)
				of[0].Problem.Pod = "pod-1"
				r.w.Observe(of, time.Now())
				of[0].Problem.Evidence = nil // as the agent does
				r.start()
				time.Sleep(time.Second)
				state, err := r.w.State()
				if err != nil {
					t.Fatal(err)
				}
				r.stop()
				r.make(state)
				r.start()
				defer r.stop()
				time.Sleep(time.Second)
				if n, _ := r.api.known(); n != 0 {
					t.Fatal("it did not wait")
				}
				known.Store(comes)
				time.Sleep(20 * time.Second)
				if !comes {
					if s := r.w.Stats(); s.Triggers["hung"].Withheld[trigger.WithheldUnknownPod] != 1 {
						t.Errorf("%+v", s)
					}
					return
				}
				d := r.api.only(t)
				want(t, d, wellDone)
				if p := d.Spec.PodReference; p == nil || p.Name != "db-0" || d.Status.Subject != "shop/db-0" || d.Spec.Parameters["pid"] != "811" {
					t.Errorf("%+v", d.Spec)
				}
			})
		})
	}
}

// The wait for unknown sets does not last longer if the clock was set back.
func TestUnknownSetsAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.api.objects.OperationSets = nil
		r.make(nil)
		r.w.Observe(hung(began(), problem.Firing), time.Now().Add(time.Hour).Round(0))
		r.start()
		defer r.stop()
		time.Sleep(3 * time.Minute)
		want(t, r.api.only(t), "Failed OperationSetNotFound [] ")
	})
}

// If the clock was set back, what was reported before has times in the future: its problems wait no
// longer for their pods than others, also across another restart.
func TestPodsAfterTheClockWasSetBack(t *testing.T) {
	for name, restarts := range map[string]int{"replayed": 0, "restored": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects(looks()))
				r.conf.PodsKnown = func(time.Time) bool { return false }
				r.make(nil)
				of := hung(began(), problem.Firing)
				of[0].Problem.Pod = "pod-1"
				r.w.Observe(of, time.Now().Add(time.Hour).Round(0))
				r.start()
				for range restarts {
					time.Sleep(time.Second)
					r.restart(func() {})
				}
				defer func() { r.stop() }()
				time.Sleep(5 * time.Second)
				if n, _ := r.api.known(); n != 0 {
					t.Fatal("it did not wait")
				}
				time.Sleep(30 * time.Second)
				if n, _ := r.api.known(); n != 1 {
					t.Errorf("%d Diagnoses", n)
				}
			})
		})
	}
}
