package kube

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func names(o *worker.Objects) (list []string) {
	for _, x := range o.Operations {
		list = append(list, "operation "+x.Name)
	}
	for _, x := range o.OperationSets {
		list = append(list, "set "+x.Name)
	}
	for _, x := range o.Triggers {
		list = append(list, "trigger "+x.Name)
	}
	return list
}

// One server from its first minute: without the kinds, with them, away, back, empty.
func TestAServersLife(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	dir := t.TempDir()
	inDir := func(c *Config) { c.Dir, c.Timeout = dir, time.Second }
	r := start(t, server.Admin(), inDir)

	// Without the kinds.
	waitFor(t, "the kinds are missed", func() bool { return r.count(verbList, operations, KindMissing) > 1 })
	if n := r.logs.count("the CRDs of kernosis.io are not installed", "kubectl apply -f diagnose/api/crds"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, r.logs)
	}
	if n := r.logs.count("API server is unreachable"); n != 0 {
		t.Errorf("the server is there:\n%s", r.logs)
	}
	_, err := r.Create(t.Context(), diagnosisOf("default", "early", "n1"))
	is(t, err, worker.ErrAway)
	if o := r.Objects(); len(names(o)) != 0 {
		t.Errorf("objects %v", names(o))
	}
	if n := r.changed(); n != 1 { // that there is nothing
		t.Errorf("%d changes are reported", n)
	}

	// With them.
	server.CRDs(t)
	r.synced()
	waitFor(t, "it is reported", func() bool { return r.logs.count("the CRDs of kernosis.io are installed now") == 1 })
	c := apitest.Client(t, server.Admin())
	create(t, c, operationOf("o1"))
	set := create(t, c, apitest.SetOf("s1", "o1"))
	create(t, c, triggerOf("t1", "s1"))
	d := create(t, c, diagnosisOf("default", "first", "n1"))
	waitFor(t, "all is known", func() bool { return len(names(r.Objects())) == 3 && r.last("first") != nil })
	waitFor(t, "all is on the disk", func() bool {
		s := newStore(t, server.Admin(), inDir)
		return len(names(s.Objects())) == 3
	})

	missed := func() (n uint64) {
		for q, times := range r.Stats().Requests {
			if q.Outcome == KindMissing {
				n += times
			}
		}
		return n
	}
	before := missed()
	for name, c := range map[string]struct{ away, back func(testing.TB) }{
		"stopped": {server.Stop, server.Start},
		"killed":  {server.Kill, server.Start},
		"hanging": {server.Pause, server.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			c.away(t)
			back := false
			defer func() {
				if !back {
					c.back(t)
				}
			}()
			// A process that is asked to stop does so only a moment later.
			waitFor(t, "nobody answers", func() bool {
				_, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) { s.Subject = time.Now().String() })
				return err != nil
			})
			began := time.Now()
			_, err := r.Create(t.Context(), diagnosisOf("default", "while-"+name, "n1"))
			is(t, err, worker.ErrAway)
			_, err = r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) { s.Subject = name })
			is(t, err, worker.ErrAway)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the worker was held up for %s", took)
			}
			if got := names(r.Objects()); !slices.Equal(got, []string{"operation o1", "set s1", "trigger t1"}) {
				t.Errorf("objects %v", got)
			}
			if r.last("first") == nil {
				t.Error("reported that a Diagnosis is gone")
			}
			// A start without the API server.
			s := newStore(t, server.Admin(), inDir)
			if got := names(s.Objects()); !slices.Equal(got, []string{"operation o1", "set s1", "trigger t1"}) {
				t.Errorf("objects after a start %v", got)
			}
			if o := s.Objects().OperationSets[0]; o.UID != set.UID || o.Generation != 1 || len(o.Spec.AdjacencyList) != 2 {
				t.Errorf("set after a start: %+v", o)
			}
			s.run()
			if name != "hanging" { // there the connection's own timeout of 45 s would have to pass
				waitFor(t, "the start misses it", func() bool { return s.away() })
			}
			s.stop() // returns at once, even though it is waiting
			c.back(t)
			back = true
			waitFor(t, "a Diagnosis is made", func() bool {
				_, err := r.Create(t.Context(), diagnosisOf("default", "while-"+name, "n1"))
				if err != nil && !errors.Is(err, worker.ErrAway) {
					t.Fatal(err)
				}
				return err == nil
			})
			waitFor(t, "it is reported", func() bool { return r.last("while-"+name) != nil })
			waitFor(t, "its status is written", func() bool {
				got, err := r.Write(t.Context(), keyOf(d), func(s *v1alpha1.DiagnosisStatus) { s.Subject = name })
				if err != nil && !errors.Is(err, worker.ErrAway) || err == nil && got.Status.Subject != name {
					t.Fatal(got, err)
				}
				return err == nil
			})
		})
	}

	// A starting API server does not claim that the kinds are missing.
	if n := missed(); n != before || r.logs.count("the CRDs of kernosis.io are not installed") != 1 {
		t.Errorf("the kinds were missed %d times:\n%s", n-before, r.logs)
	}

	// An empty API server is not an unreachable one.
	for _, o := range r.Objects().Operations {
		remove(t, c, o.DeepCopy())
	}
	remove(t, c, apitest.SetOf("s1"))
	remove(t, c, triggerOf("t1", ""))
	waitFor(t, "nothing is left", func() bool { return len(names(r.Objects())) == 0 })
	r.stop()
	server.Stop(t)
	s := newStore(t, server.Admin(), inDir)
	if got := names(s.Objects()); len(got) != 0 {
		t.Errorf("objects after a start %v", got)
	}
}

// A file that can't be read or written is reported, and treated as missing.
func TestTheFile(t *testing.T) {
	server, c := served(t)
	s := create(t, c, apitest.SetOf(unique(t, "s"), "kernel-facts"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, savedFile), []byte(`{"operations": [tor`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, server.Admin(), func(c *Config) { c.Dir, c.MaxSaved = dir, 20 })
	if r.logs.count("can't read the saved") != 1 || len(names(r.Objects())) != 0 {
		t.Errorf("objects %v:\n%s", names(r.Objects()), r.logs)
	}
	r.synced()
	if r.set(s.Name) == nil {
		t.Error("the set is not known")
	}
	waitFor(t, "the bound is reported", func() bool {
		return r.logs.count("can't save", "at most 20 are allowed") > 0
	})
}
