package observe

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
)

// Without probes nothing is searched for, and nothing is reported missing.
func TestNothingRunsWithoutProbes(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(root+"/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, counts: map[string]*Count{}}
		m := probe.New(probe.Config{})
		m.AddPod(&probe.Pod{UID: "u1", Namespace: "shop", Name: "web-1", Containers: []probe.Container{{Name: "app", ID: "containerd://8a1f", State: probe.Running}}})
		w.o = New(Config{
			Manager: m, Sockets: w, Kubelet: w, FS: hostfs.New(root), Comms: []string{"kubelet"},
			State: func(part string, err error) {
				state := part + " up"
				if err != nil {
					state = part + " down"
				}
				w.change(func() { w.states = append(w.states, state) })
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.o.follow(ctx); close(done) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !w.o.kubelet.tried.IsZero() || len(w.states) != 0 || w.asked != 0 {
			t.Errorf("kubelet was looked for at %s, asked %d times, reported %q", w.o.kubelet.tried, w.asked, w.states)
		}
		spec := &probe.Spec{Handler: probe.Exec, Timeout: time.Second, Period: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3}
		m.AddPod(&probe.Pod{UID: "u2", Containers: []probe.Container{{Name: "app", Liveness: spec}}})
		w.o.Listed()
		time.Sleep(time.Second)
		synctest.Wait()
		if w.o.kubelet.tried.IsZero() || !slices.Equal(w.states, []string{"sockets down", "results up"}) {
			t.Errorf("kubelet was not looked for; reported %q", w.states)
		}
		m.RemovePod("u2")
		w.o.Listed()
		time.Sleep(time.Hour)
		synctest.Wait()
		if time.Since(w.o.kubelet.tried) < 59*time.Minute || w.states[len(w.states)-1] != "sockets up" {
			t.Errorf("kubelet was looked for at %s, reported %q", w.o.kubelet.tried, w.states)
		}
		cancel()
		<-done
	})
}

// A node without kubelet is scanned ever less often, but sooner when there are new pods.
func TestKubeletIsLookedForEverLessOften(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(root+"/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	k := kubelets{fs: hostfs.New(root), comms: []string{"kubelet"}}
	now := time.Unix(1000, 0)
	var gaps []time.Duration
	tries := func(d time.Duration) (n int) {
		for range int(d / time.Second) {
			before := k.tried
			if _, err := k.look(now); err == nil {
				t.Fatal("found one")
			}
			if k.tried != before {
				n++
				gaps = append(gaps, k.tried.Sub(before))
			}
			now = now.Add(time.Second)
		}
		return n
	}
	tries(5 * time.Minute)
	if want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute}; !slices.Equal(gaps[1:7], want) {
		t.Errorf("gone through after %v, want %v", gaps[1:], want)
	}
	k.hurry(now)
	if n := tries(6 * time.Second); n == 0 {
		t.Error("not sooner for new pods")
	}
}
