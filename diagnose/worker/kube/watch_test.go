package kube

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func served(t testing.TB) (*kubetest.Server, client.Client) {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	return server, apitest.Client(t, server.Admin())
}

func TestObjectsAreAsTheClusterHasThem(t *testing.T) {
	server, c := served(t)
	name := unique(t, "x")
	before := create(t, c, apitest.SetOf(name+"-before", "kernel-facts"))
	r := start(t, server.Admin(), nil)
	r.synced()
	if r.set(before.Name) == nil {
		t.Fatal("what was there before is not known")
	}
	after := create(t, c, apitest.SetOf(name, "kernel-facts", "kmsg-tail"))
	create(t, c, operationOf(name))
	create(t, c, triggerOf(name, name))
	waitFor(t, "a set that is new", func() bool { return r.set(name) != nil })
	waitFor(t, "an operation and a trigger", func() bool {
		o := r.Objects()
		return slices.ContainsFunc(o.Operations, func(o *v1alpha1.Operation) bool { return o.Name == name }) &&
			slices.ContainsFunc(o.Triggers, func(o *v1alpha1.Trigger) bool { return o.Name == name })
	})
	if s := r.set(name); s.ManagedFields != nil || len(s.Spec.AdjacencyList) != 3 {
		t.Errorf("set: %+v", s)
	}

	t.Run("a status is no change", func(t *testing.T) {
		reported := r.changed()
		after.Status.Ready, after.Status.PathCount = true, "1"
		if err := c.Status().Update(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the watch has seen it", func() bool {
			known, _ := r.sets.get(types.NamespacedName{Name: name})
			return known.ResourceVersion == after.ResourceVersion
		})
		if r.changed() != reported {
			t.Errorf("%d changes are reported", r.changed()-reported)
		}
		if s, _ := r.sets.get(types.NamespacedName{Name: name}); s.Status.Ready || s.Status.PathCount != "" {
			t.Errorf("the status is kept: %+v", s.Status)
		}
	})
	t.Run("a spec is", func(t *testing.T) {
		reported := r.changed()
		after.Spec.AdjacencyList[2].Operation = "cordon"
		if err := c.Update(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the other spec", func() bool {
			s := r.set(name)
			return s.Spec.AdjacencyList[2].Operation == "cordon" && r.changed() > reported
		})
	})
	t.Run("an end is", func(t *testing.T) {
		reported := r.changed()
		remove(t, c, after)
		waitFor(t, "the set is gone", func() bool { return r.set(name) == nil && r.changed() > reported })
	})
}

func TestDiagnosesOfTheNodeAlone(t *testing.T) {
	server, c := served(t)
	ns, other := server.Namespace(t), server.Namespace(t)
	node := unique(t, "node")
	before := create(t, c, diagnosisOf(ns, "before", node))
	r := start(t, server.Admin(), func(c *Config) { c.Node = node })
	r.synced()
	waitFor(t, "the one of before", func() bool { return r.last("before") != nil })
	create(t, c, diagnosisOf(ns, "elsewhere", node+"x"))
	create(t, c, diagnosisOf(other, "tenant", node)) // of another namespace, after it
	waitFor(t, "the one of another namespace", func() bool { return r.last("tenant") != nil })
	if r.last("elsewhere") != nil {
		t.Error("reported for another node's")
	}

	t.Run("a pod's, once its node is known", func(t *testing.T) {
		d := diagnosisOf(ns, "pod", "")
		d.Spec.PodReference = &v1alpha1.PodReference{Name: "web-0"}
		create(t, c, d)
		d.Spec.NodeName = node
		if err := c.Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "it is reported", func() bool { return r.last("pod") != nil })
	})
	t.Run("cancelled", func(t *testing.T) {
		before.Spec.Cancel = true
		if err := c.Update(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "it is reported", func() bool { d := r.last("before"); return d != nil && d.Spec.Cancel })
		if d := r.last("before"); d.ManagedFields != nil {
			t.Error("managed fields are kept")
		}
	})
	t.Run("deleted", func(t *testing.T) {
		remove(t, c, before)
		waitFor(t, "it is reported", func() bool {
			reported := r.of("before")
			return len(reported) > 0 && reported[len(reported)-1] == "gone before "+string(before.UID)
		})
		if _, known := r.diagnoses.get(client.ObjectKeyFromObject(before)); known {
			t.Error("it is kept")
		}
	})
}

// A Diagnosis recreated under its name is a different one, whether or not the deletion was seen.
func TestMadeAnewUnderItsName(t *testing.T) {
	server, c := served(t)
	ns := server.Namespace(t)
	for name, unseen := range map[string]bool{"seen": false, "while-cut-off": true} {
		t.Run(name, func(t *testing.T) {
			node := unique(t, "node")
			p, through := kubetest.NewProxy(t, server, server.Admin())
			first := create(t, c, diagnosisOf(ns, name, node))
			stays := create(t, c, diagnosisOf(ns, name+"-stays", node))
			r := start(t, through, func(c *Config) { c.Node = node })
			r.synced()
			waitFor(t, "it is reported", func() bool { return r.last(name) != nil && r.last(stays.Name) != nil })
			if unseen {
				p.Cut()
			}
			remove(t, c, first)
			second := create(t, c, diagnosisOf(ns, name, node))
			if unseen {
				p.Do(nil)
			}
			waitFor(t, "the other is reported", func() bool { d := r.last(name); return d != nil && d.UID == second.UID })
			want := []string{name + " " + string(first.UID), "gone " + name + " " + string(first.UID), name + " " + string(second.UID)}
			if reported := r.of(name); !slices.Equal(reported, want) {
				t.Errorf("reported %q, want %q", reported, want)
			}
			if reported := r.of(stays.Name); len(reported) != 1 {
				t.Errorf("of one that has not changed %q was reported", reported)
			}
			_, err := r.Write(t.Context(), keyOf(first), func(s *v1alpha1.DiagnosisStatus) { s.Phase = v1alpha1.PhaseRunning })
			is(t, err, worker.ErrGone)
			d, err := r.Write(t.Context(), keyOf(second), func(s *v1alpha1.DiagnosisStatus) { s.Phase = v1alpha1.PhaseRunning })
			if err != nil || d.Status.Phase != v1alpha1.PhaseRunning {
				t.Error(d, err)
			}
		})
	}
}

// Connections that are cut repeatedly lose nothing, and each further watch is counted.
func TestCutConnections(t *testing.T) {
	server, c := served(t)
	ns, node := server.Namespace(t), unique(t, "node")
	p, through := kubetest.NewProxy(t, server, server.Admin())
	r := start(t, through, func(c *Config) { c.Node = node })
	r.synced()
	for i := range 3 {
		watches := r.Stats().Watches
		p.Cut()
		name := "cut-" + string(rune('a'+i))
		d := create(t, c, diagnosisOf(ns, name, node))
		s := create(t, c, apitest.SetOf(unique(t, name), "kernel-facts"))
		p.Do(nil)
		waitFor(t, "what was made meanwhile is known", func() bool { return r.last(name) != nil && r.set(s.Name) != nil })
		if now := r.Stats().Watches; now[diagnoses] <= watches[diagnoses] || now[operationSets] <= watches[operationSets] {
			t.Errorf("watches before %v, now %v", watches, now)
		}
		if got := r.last(name); got.UID != d.UID {
			t.Errorf("%s is %s, want %s", name, got.UID, d.UID)
		}
	}
	if text := r.logs.String(); strings.Contains(text, "reflector") {
		t.Errorf("client-go logs by itself:\n%s", text)
	}
}

// After "too old" the API server is listed again, and the watch continues.
func TestTooOld(t *testing.T) {
	server, c := served(t)
	ns, node := server.Namespace(t), unique(t, "node")
	p, through := kubetest.NewProxy(t, server, server.Admin())
	r := start(t, through, func(c *Config) { c.Node = node })
	r.synced()
	var old atomic.Int32
	p.Do(func(w http.ResponseWriter, req *http.Request) bool {
		// Match only a watch that continues from a known version, not one that begins with a list.
		q := req.URL.Query()
		if q.Get("watch") == "" || q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0" {
			return false
		}
		old.Add(1)
		return kubetest.Answer(w, http.StatusGone, "Expired")
	})
	p.CloseClientConnections()
	create(t, c, diagnosisOf(ns, "after", node))
	waitFor(t, "it is reported", func() bool { return r.last("after") != nil })
	if old.Load() == 0 {
		t.Error("no watch was refused")
	}
}

// A Diagnosis that arrives before its set and operations is delivered together with them.
func TestDiagnosisBeforeItsSet(t *testing.T) {
	server, c := served(t)
	ns, node, name := server.Namespace(t), unique(t, "node"), unique(t, "x")
	p, through := kubetest.NewProxy(t, server, server.Admin())
	r := newStore(t, through, func(c *Config) {
		c.Node = node
		c.Builtin = func(name string) bool { return name == "kernel-facts" }
	})
	var known []string
	r.onDiagnosis = func(d *v1alpha1.Diagnosis) {
		o := r.Objects()
		if slices.ContainsFunc(o.OperationSets, func(s *v1alpha1.OperationSet) bool { return s.Name == name }) {
			known = append(known, d.Name+" set")
		}
		if slices.ContainsFunc(o.Operations, func(o *v1alpha1.Operation) bool { return o.Name == name }) {
			known = append(known, d.Name+" operation")
		}
	}
	r.run()
	r.synced()
	// From here on the watches of Operations, OperationSets and Triggers fail.
	p.Do(func(w http.ResponseWriter, req *http.Request) bool {
		return req.URL.Query().Get("watch") != "" && !strings.Contains(req.URL.Path, diagnoses) && kubetest.Answer(w, http.StatusInternalServerError, "InternalError")
	})
	p.CloseClientConnections()
	create(t, c, operationOf(name))
	create(t, c, apitest.SetOf(name, "kernel-facts", name, "there-is-none"))
	d := diagnosisOf(ns, "first", node)
	d.Spec.OperationSet = name
	reported := r.changed()
	create(t, c, d)
	waitFor(t, "it is reported", func() bool { return r.last("first") != nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := []string{"first set", "first operation"}; !slices.Equal(known, want) {
		t.Errorf("known was %q, want %q", known, want)
	}
	if r.changes == reported {
		t.Error("the handler was not called for them")
	}
}
