package kube

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// Two concurrent creations of the same Diagnosis return the same object, and only one exists.
func TestCreateTwice(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	a, b := newStore(t, server.Admin(), nil), newStore(t, server.Admin(), nil)
	for i := range 20 {
		name := "twice-" + string(rune('a'+i))
		var made [2]*v1alpha1.Diagnosis
		var errs [2]error
		var both sync.WaitGroup
		for i, s := range []*rig{a, b} {
			both.Go(func() { made[i], errs[i] = s.Create(t.Context(), diagnosisOf(ns, name, "n1")) })
		}
		both.Wait()
		if err := errors.Join(errs[0], errs[1]); err != nil {
			t.Fatal(err)
		}
		if made[0].UID == "" || made[0].UID != made[1].UID {
			t.Fatalf("two were made: %s, %s", made[0].UID, made[1].UID)
		}
	}
	var list v1alpha1.DiagnosisList
	if err := c.List(t.Context(), &list, inNamespace(ns)); err != nil || len(list.Items) != 20 {
		t.Fatal(len(list.Items), err)
	}
	if done, exists := a.count(verbCreate, diagnoses, Done)+b.count(verbCreate, diagnoses, Done), a.count(verbCreate, diagnoses, Exists)+b.count(verbCreate, diagnoses, Exists); done != 20 || exists != 20 {
		t.Errorf("%d made, %d there already", done, exists)
	}
}

// An ended one counts as created, and is returned unchanged.
func TestCreateOfOneThatHasEnded(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	there := create(t, c, diagnosisOf(ns, "ended", "n1"))
	there.Status = endedStatus()
	if err := c.Status().Update(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	r := newStore(t, server.Admin(), nil)
	d, err := r.Create(t.Context(), diagnosisOf(ns, "ended", "n1"))
	if err != nil || d.UID != there.UID || len(d.Status.Results) != 1 || d.ManagedFields != nil {
		t.Fatal(d, err)
	}
}

func endedStatus() v1alpha1.DiagnosisStatus {
	return v1alpha1.DiagnosisStatus{
		Phase: v1alpha1.PhaseSucceeded, SucceededPath: v1alpha1.Path{1},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPathSucceeded, LastTransitionTime: metav1.Now(),
		}},
		Results: []v1alpha1.Result{{ID: 1, Operation: "kernel-facts", State: v1alpha1.ResultSucceeded, Values: map[string]string{"release": "6.12"}}},
	}
}

// Final rejections by the API server are distinguished from temporary errors.
func TestCreateRefused(t *testing.T) {
	server, _ := served(t)
	ns := server.Namespace(t)
	going := server.Namespace(t)
	if err := server.Client().CoreV1().Namespaces().Delete(t.Context(), going, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		outcome conditions.Outcome
		text    string
		change  func(d *v1alpha1.Diagnosis)
	}{
		"invalid":     {conditions.Refused, "spec.operationSet", func(d *v1alpha1.Diagnosis) { d.Spec.OperationSet = "No Name" }},
		"terminating": {Terminating, "being terminated", func(d *v1alpha1.Diagnosis) { d.Namespace = going }},
		"nowhere":     {NotFound, "namespaces", func(d *v1alpha1.Diagnosis) { d.Namespace = "there-is-none" }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStore(t, server.Admin(), nil)
			d := diagnosisOf(ns, name, "n1")
			want.change(d)
			_, err := r.Create(t.Context(), d)
			if err == nil || errors.Is(err, worker.ErrAway) || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), d.Namespace+"/"+name) {
				t.Errorf("error %v", err)
			}
			if r.count(verbCreate, diagnoses, want.outcome) != 1 {
				t.Errorf("requests %v", r.Stats().Requests)
			}
			if n := kubetest.Sum(t, kubetest.Registered(t, r.Store), "kernosis_diagnosis_api_requests_total", "verb", verbCreate, "outcome", string(want.outcome)); n != 1 {
				t.Errorf("the metric has %v", n)
			}
		})
	}
	t.Run("forbidden", func(t *testing.T) {
		r := newStore(t, server.Config(t, "nobody"), func(c *Config) { c.Settle = time.Nanosecond })
		for range 3 {
			_, err := r.Create(t.Context(), diagnosisOf(ns, "forbidden", "n1"))
			if err == nil || errors.Is(err, worker.ErrAway) || !strings.Contains(err.Error(), `User "nobody" cannot create resource "diagnoses"`) {
				t.Fatalf("error %v", err)
			}
		}
		if n := r.logs.count("permission is missing", "verb=create", "resource=diagnoses"); n != 1 {
			t.Errorf("reported %d times:\n%s", n, r.logs)
		}
	})
	t.Run("forbidden by one that has just started", func(t *testing.T) {
		p, through := kubetest.NewProxy(t, server, server.Admin())
		r := newStore(t, through, func(c *Config) { c.Settle = 3 * time.Second })
		p.Do(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
		_, err := r.Create(t.Context(), diagnosisOf(ns, "started", "n1"))
		is(t, err, worker.ErrAway)
		p.Do(func(w http.ResponseWriter, _ *http.Request) bool {
			return kubetest.Answer(w, http.StatusForbidden, "Forbidden")
		})
		_, err = r.Create(t.Context(), diagnosisOf(ns, "started", "n1"))
		is(t, err, worker.ErrAway)
		if n := r.logs.count("permission is missing"); n != 0 {
			t.Errorf("missing rights are reported:\n%s", r.logs)
		}
		waitFor(t, "it is believed", func() bool {
			_, err := r.Create(t.Context(), diagnosisOf(ns, "started", "n1"))
			return !errors.Is(err, worker.ErrAway)
		})
		if n := r.logs.count("permission is missing"); n != 1 {
			t.Errorf("reported %d times:\n%s", n, r.logs)
		}
	})
}

// Concurrent use of a ResourceQuota gives a conflict: the next try may succeed.
func TestCreateInAConflict(t *testing.T) {
	server, _ := served(t)
	p, through := kubetest.NewProxy(t, server, server.Admin())
	r := newStore(t, through, nil)
	p.Do(func(w http.ResponseWriter, _ *http.Request) bool {
		return kubetest.Answer(w, http.StatusConflict, "Conflict")
	})
	_, err := r.Create(t.Context(), diagnosisOf(server.Namespace(t), "conflict", "n1"))
	is(t, err, worker.ErrAway)
	if r.count(verbCreate, diagnoses, conditions.Conflict) != 1 || r.away() {
		t.Errorf("%+v", r.Stats())
	}
}

func TestCreateWhileAway(t *testing.T) {
	server, _ := served(t)
	ns := server.Namespace(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, c := range map[string]struct {
		outcome conditions.Outcome
		harm    func(http.ResponseWriter, *http.Request) bool
	}{
		"throttled": {conditions.Throttled, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "30")
			return kubetest.Answer(w, http.StatusTooManyRequests, "TooManyRequests")
		}},
		"internal error": {conditions.ServerError, func(w http.ResponseWriter, _ *http.Request) bool {
			return kubetest.Answer(w, http.StatusInternalServerError, "InternalError")
		}},
		"no server behind it": {conditions.ServerError, func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no server", http.StatusServiceUnavailable)
			return true
		}},
		"token expired": {conditions.Unauthorized, func(w http.ResponseWriter, _ *http.Request) bool {
			return kubetest.Answer(w, http.StatusUnauthorized, "Unauthorized")
		}},
		"hangs": {conditions.TimedOut, func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return true
		}},
		"connection cut": {conditions.Unreachable, func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }},
	} {
		t.Run(name, func(t *testing.T) {
			p, through := kubetest.NewProxy(t, server, server.Admin())
			p.Do(c.harm)
			timeout := 5 * time.Second // more than a first request over a new connection takes
			if c.outcome == conditions.TimedOut {
				timeout = 200 * time.Millisecond
			}
			r := newStore(t, through, func(c *Config) { c.Timeout = timeout })
			began := time.Now()
			d := diagnosisOf(ns, "away-"+strings.ReplaceAll(name, " ", "-"), "n1")
			_, err := r.Create(t.Context(), d)
			is(t, err, worker.ErrAway)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the worker was held up for %s", took)
			}
			if r.count(verbCreate, diagnoses, c.outcome) != 1 || !r.away() {
				t.Errorf("stats %+v", r.Stats())
			}
			p.Do(nil)
			waitFor(t, "it is made", func() bool { _, err := r.Create(t.Context(), d); return err == nil })
			if r.logs.count("API server is unreachable") != 1 || r.logs.count("API server is reachable again") != 1 {
				t.Errorf("logged:\n%s", r.logs)
			}
		})
	}
}

// If one was created but the response was lost, the next try finds it.
func TestCreateWhoseAnswerIsLost(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	p, through := kubetest.NewProxy(t, server, server.Admin())
	var once sync.Once
	p.Do(func(_ http.ResponseWriter, r *http.Request) bool {
		lose := false
		once.Do(func() { lose = true })
		if !lose {
			return false
		}
		p.Do(nil)
		return p.LoseAnswer(r)
	})
	r := newStore(t, through, nil)
	_, err := r.Create(t.Context(), diagnosisOf(ns, "lost", "n1"))
	is(t, err, worker.ErrAway)
	d, err := r.Create(t.Context(), diagnosisOf(ns, "lost", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	var there v1alpha1.Diagnosis
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), &there); err != nil || there.UID != d.UID {
		t.Fatal(there.UID, d.UID, err)
	}
}

// The agent's shutdown is no rejection: what was to be created is not lost.
func TestCreateAtTheEnd(t *testing.T) {
	server, _ := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newStore(t, server.Admin(), nil)
	_, err := r.Create(ctx, diagnosisOf("default", "end", "n1"))
	is(t, err, worker.ErrAway)
}
