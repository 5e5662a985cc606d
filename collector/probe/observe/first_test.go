package observe

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// calls counts the calls of Set.
type calls struct{ *world }

func (c calls) Set(t []Target) error {
	c.change(func() { c.asked++ })
	return c.world.Set(t)
}

// An agent that knows only some of the pods, or does not know where kubelet is, sets no targets:
// those of an earlier run stay.
func TestFirstListIsWhole(t *testing.T) {
	fs := node(t)
	for name, c := range map[string]struct {
		comm string
		want int
	}{"kubelet runs": {"kubelet", 1}, "no kubelet yet": {"another", 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, counts: map[string]*Count{}}
				w.manager = probe.New(probe.Config{})
				o := New(Config{Manager: w.manager, Sockets: calls{w}, FS: fs, State: func(string, error) {}, Comms: []string{c.comm}})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- o.Run(ctx) }()
				for _, uid := range []string{"u1", "u2"} {
					w.manager.AddPod(&probe.Pod{UID: uid, Name: uid, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}, Containers: []probe.Container{{
						Name: "app", Liveness: &probe.Spec{Handler: probe.TCP, Port: 8080, Timeout: time.Second, Period: time.Second},
					}}})
					o.Changed()
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				if w.asked != 0 {
					t.Errorf("%d lists before all pods were known", w.asked)
				}
				o.Listed()
				time.Sleep(time.Second)
				synctest.Wait()
				if len(w.targets) != c.want || (w.asked > 0) != (c.want > 0) {
					t.Errorf("%d lists, the last one %v, want %d targets", w.asked, w.targets, c.want)
				}
				cancel()
				<-done
			})
		})
	}
}

// What kubelet had counted before the Observer knew all pods is not a new failure of any of them.
func TestFirstCountsAreOfAllPods(t *testing.T) {
	fs := node(t)
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, counts: map[string]*Count{}, results: map[probe.Key]Results{}}
		w.manager = probe.New(probe.Config{Start: time.Now().Add(-time.Hour), Report: func(ev *event.Event) {
			w.change(func() { w.events = append(w.events, ev.Clone()) })
		}})
		o := New(Config{Manager: w.manager, Sockets: w, Kubelet: w, FS: fs, State: func(string, error) {}, Comms: []string{"kubelet"}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- w.manager.Run(ctx) }()
		go func() { done <- o.Run(ctx) }()
		add := func(uid string) {
			w.change(func() {
				w.results[probe.Key{PodUID: uid, Container: "app", Kind: probe.Liveness}] = Results{Failed: 40}
			})
			w.manager.AddPod(&probe.Pod{UID: uid, Name: uid, Containers: []probe.Container{{
				Name: "app", ID: "containerd://" + uid, State: probe.Running, StartedAt: time.Now().Add(-time.Hour), Started: true,
				Liveness: &probe.Spec{Handler: probe.Exec, Timeout: time.Second, Period: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3},
			}}})
			o.Changed()
			time.Sleep(time.Minute)
		}
		add("u1")
		add("u2")
		w.change(func() {
			if w.asked != 0 {
				t.Errorf("kubelet was polled %d times before all pods were known", w.asked)
			}
		})
		o.Listed()
		time.Sleep(time.Minute)
		w.wantReported()
		w.change(func() {
			w.results[probe.Key{PodUID: "u2", Container: "app", Kind: probe.Liveness}] = Results{Failed: 41}
		})
		time.Sleep(15 * time.Second)
		w.wantReported("liveness exec-failed 1/3")
		cancel()
		<-done
		<-done
	})
}
