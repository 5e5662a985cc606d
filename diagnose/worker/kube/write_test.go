package kube

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

func inNamespace(ns string) client.ListOption { return client.InNamespace(ns) }

// Agent and controller write at the same time, each its own part: nothing is lost.
func TestNothingIsLostBetweenTwoWriters(t *testing.T) {
	server, c := served(t)
	ns, node := server.Namespace(t), unique(t, "node")
	r := start(t, server.Admin(), func(c *Config) { c.Node = node })
	r.synced()
	d, err := r.Create(t.Context(), diagnosisOf(ns, "both", node))
	if err != nil {
		t.Fatal(err)
	}
	const agents, writes = 3, 40
	var all sync.WaitGroup
	for i := range agents {
		all.Go(func() {
			for range writes {
				for {
					_, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) {
						// A list, a part of a map, and one that comes and goes.
						s.FailedPaths = append(s.FailedPaths[:min(len(s.FailedPaths), 31)], v1alpha1.Path{int32(i + 1)})
						n, _ := strconv.Atoi(s.FailedPathCount)
						s.FailedPathCount = strconv.Itoa(n + 1)
						if s.Checkpoint == nil {
							s.Checkpoint = &v1alpha1.Checkpoint{Holder: "a", Time: metav1.NowMicro()}
						} else {
							s.Checkpoint = nil
						}
					})
					if err == nil {
						break
					}
					if !errors.Is(err, worker.ErrAway) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Go(func() { // the controller
		for range writes {
			for {
				var now v1alpha1.Diagnosis
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), &now); err != nil {
					t.Error(err)
					return
				}
				if now.Status.Targets == nil {
					now.Status.Targets = &v1alpha1.Targets{}
				}
				now.Status.Targets.Created++
				apimeta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionRemediationAllowed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonObserveOnly,
					Message: strconv.Itoa(int(now.Status.Targets.Created)),
				})
				err := c.Status().Update(t.Context(), &now)
				if err == nil {
					break
				}
				if !apierrors.IsConflict(err) {
					t.Error(err)
					return
				}
			}
		}
	})
	all.Wait()
	var end v1alpha1.Diagnosis
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), &end); err != nil {
		t.Fatal(err)
	}
	s := &end.Status
	if s.FailedPathCount != strconv.Itoa(agents*writes) || s.Targets == nil || s.Targets.Created != writes || s.Checkpoint != nil {
		t.Errorf("%s of %d writes of the agent, controller %+v, checkpoint %+v", s.FailedPathCount, agents*writes, s.Targets, s.Checkpoint)
	}
	if cond := apimeta.FindStatusCondition(s.Conditions, v1alpha1.ConditionRemediationAllowed); cond == nil || cond.Message != strconv.Itoa(writes) {
		t.Errorf("conditions %+v", s.Conditions)
	}
	t.Logf("%d conflicts of %d writes", r.count(verbPatch, statusOf, conditions.Conflict), agents*writes)
	if r.count(verbPatch, statusOf, conditions.Conflict) == 0 {
		t.Error("there was no conflict")
	}
}

// A write uses the response to the previous one and needs no read.
func TestWritesInARowAskForNothing(t *testing.T) {
	server, _ := served(t)
	ns, node := server.Namespace(t), unique(t, "node")
	r := start(t, server.Admin(), func(c *Config) { c.Node = node })
	r.synced()
	d, err := r.Create(t.Context(), diagnosisOf(ns, "row", node))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		got, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) {
			s.Phase, s.Subject = v1alpha1.PhaseRunning, strconv.Itoa(i)
		})
		if err != nil || got.Status.Subject != strconv.Itoa(i) || got.Spec.Parameters["device"] != "loop0" {
			t.Fatal(got, err)
		}
	}
	if r.count(verbGet, diagnoses, Done) != 0 || r.count(verbPatch, statusOf, conditions.Conflict) != 0 || r.count(verbPatch, statusOf, Done) != 20 {
		t.Errorf("requests %v", r.Stats().Requests)
	}
	t.Run("what is so already is not written", func(t *testing.T) {
		if _, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) { s.Phase = v1alpha1.PhaseRunning }); err != nil {
			t.Fatal(err)
		}
		if n := r.count(verbPatch, statusOf, Done); n != 20 {
			t.Errorf("%d writes", n)
		}
	})
	waitFor(t, "the handler has the last", func() bool { d := r.last("row"); return d != nil && d.Status.Subject == "19" })
}

// Little of an ended one is kept in memory, but writing its problem's state preserves what others
// and the run have written.
func TestWriteToOneThatHasEnded(t *testing.T) {
	server, c := served(t)
	ns, node := server.Namespace(t), unique(t, "node")
	there := create(t, c, diagnosisOf(ns, "ended", node))
	there.Status = endedStatus()
	if err := c.Status().Update(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	r := start(t, server.Admin(), func(c *Config) { c.Node = node })
	r.synced()
	waitFor(t, "it is reported", func() bool { return r.last("ended") != nil })
	if d := r.last("ended"); len(d.Status.Results) != 1 || d.Spec.Parameters["device"] != "loop0" {
		t.Errorf("reported without its results: %+v", d)
	}
	if known, _ := r.diagnoses.get(client.ObjectKeyFromObject(there)); known.Status.Results != nil || known.Spec.Parameters != nil {
		t.Errorf("all of it is remembered: %+v", known)
	}
	got, err := r.Write(t.Context(), keyOf(there), func(s *v1alpha1.DiagnosisStatus) {
		if len(s.Results) != 1 || s.Results[0].Values["release"] != "6.12" {
			t.Errorf("changed without its results: %+v", s)
		}
		s.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NowMicro()}
	})
	if err != nil || got.Status.Problem == nil || len(got.Status.Results) != 1 {
		t.Fatal(got, err)
	}
}

func TestWriteToWhatIsGone(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	running := func(s *v1alpha1.DiagnosisStatus) { s.Phase = v1alpha1.PhaseRunning }
	for name, watched := range map[string]bool{"watched": true, "not watched": false} {
		t.Run(name, func(t *testing.T) {
			node := unique(t, "node")
			r := newStore(t, server.Admin(), func(c *Config) { c.Node = node })
			if watched {
				r.run()
				r.synced()
			}
			name := strings.ReplaceAll(name, " ", "-")
			d, err := r.Create(t.Context(), diagnosisOf(ns, name, node))
			if err != nil {
				t.Fatal(err)
			}
			remove(t, c, d.DeepCopy())
			_, err = r.Write(t.Context(), keyOf(d), running)
			is(t, err, worker.ErrGone)
			again := create(t, c, diagnosisOf(ns, name, node))
			_, err = r.Write(t.Context(), keyOf(d), running)
			is(t, err, worker.ErrGone)
			if _, err = r.Write(t.Context(), keyOf(again), running); err != nil {
				t.Error(err)
			}
		})
	}
}

// A rejected status is reported as a short rejection, not as an outage.
func TestWriteRefused(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	r := newStore(t, server.Admin(), nil)
	d := create(t, c, diagnosisOf(ns, "refused", "n1"))
	for name, want := range map[string]struct {
		outcome conditions.Outcome
		text    string
		change  func(s *v1alpha1.DiagnosisStatus)
	}{
		"invalid": {conditions.Refused, "status.phase", func(s *v1alpha1.DiagnosisStatus) { s.Phase = "Nonsense" }},
		"larger than the API server takes": {TooLarge, "too large", func(s *v1alpha1.DiagnosisStatus) {
			s.Subject = strings.Repeat("x", 4<<20)
		}},
		"larger than etcd takes": {TooLarge, "too large", func(s *v1alpha1.DiagnosisStatus) {
			for i := range 256 {
				// As large as the schema allows, which counts characters.
				s.Results = append(s.Results, v1alpha1.Result{
					ID: int32(i), State: v1alpha1.ResultSucceeded, Message: strings.Repeat("\U0001F600", 1000),
					Values: map[string]string{"v": strings.Repeat("\U0001F600", 1000)},
				})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.count(verbPatch, statusOf, want.outcome)
			_, err := r.Write(t.Context(), keyOf(d), want.change)
			if err == nil || errors.Is(err, worker.ErrAway) || errors.Is(err, worker.ErrGone) || !strings.Contains(err.Error(), want.text) {
				t.Fatalf("error %.2000v", err)
			}
			if len(err.Error()) > 2<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if r.count(verbPatch, statusOf, want.outcome) != before+1 {
				t.Errorf("requests %v", r.Stats().Requests)
			}
		})
	}
}

// A writer that always gets a conflict gets an error, and must retry later.
func TestWriteThatNeverWins(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	r := newStore(t, server.Admin(), nil)
	d := create(t, c, diagnosisOf(ns, "never", "n1"))
	n := 0
	_, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) {
		n++
		var now v1alpha1.Diagnosis
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), &now); err != nil {
			t.Fatal(err)
		}
		now.Status.Subject = strconv.Itoa(n)
		if err := c.Status().Update(t.Context(), &now); err != nil {
			t.Fatal(err)
		}
		s.Phase = v1alpha1.PhaseRunning
	})
	is(t, err, worker.ErrAway)
	if n != maxTries {
		t.Errorf("%d tries", n)
	}
}
