package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/probe"
)

// silent is an API server that does not answer.
type silent struct{ *world }

func (s silent) Unhealthy(ctx context.Context, _, _ string) ([]Unhealthy, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An API server that does not answer is waited for once, whatever the number of failing pods.
func TestEventsThatDoNotCome(t *testing.T) {
	const pods = 5
	uid := func(i int) string { return fmt.Sprintf("u%d", i) }
	in(t, func(w *world, c *Config, p *probe.Pod) {
		c.Kubelet, c.Words = w, silent{w}
		p.Containers[0].Liveness.Handler, p.Containers[0].Liveness.Port = probe.Exec, 0
		for i := 2; i <= pods; i++ {
			next := *p
			next.UID, next.Name = uid(i), uid(i)
			w.manager.AddPod(&next)
		}
	}, func(w *world) {
		time.Sleep(time.Second)
		w.change(func() {
			for i := 1; i <= pods; i++ {
				w.results[probe.Key{PodUID: uid(i), Container: "app", Kind: probe.Liveness}] = Results{Failed: 1}
			}
		})
		time.Sleep(pollEvery + askFor)
		if got := w.reported(); len(got) != pods {
			t.Errorf("reported %q in time, want %d", got, pods)
		}
		if s := w.o.Stats(); s.Asked != 1 || s.Unasked != pods-1 {
			t.Errorf("%+v", s)
		}
		w.change(func() {
			if want := "events: " + context.DeadlineExceeded.Error(); !slices.Contains(w.states, want) {
				t.Errorf("reported %q, want %q", w.states, want)
			}
		})
	})
}

// refusing is an API server that refuses a number of requests.
type refusing struct {
	*world
	left int
}

func (r *refusing) Unhealthy(context.Context, string, string) ([]Unhealthy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left--; r.left >= 0 {
		return nil, errors.New("refused")
	}
	return nil, nil
}

// last returns the state of a part that was reported last.
func (w *world) last(part string) (state string) {
	w.change(func() {
		for _, s := range w.states {
			if of, text, _ := strings.Cut(s, ": "); of == part {
				state = text
			}
		}
	})
	return state
}

// After a request that failed, the source recovers without another failure of a probe: when the API
// server answers again, or when no probes are left.
func TestEventsComeBack(t *testing.T) {
	for _, refused := range []int{2, 1000} {
		in(t, func(w *world, c *Config, p *probe.Pod) {
			c.Kubelet, c.Words = w, &refusing{w, refused}
			p.Containers[0].Liveness.Handler, p.Containers[0].Liveness.Port = probe.Exec, 0
		}, func(w *world) {
			time.Sleep(time.Second)
			w.change(func() {
				w.results[probe.Key{PodUID: "u1", Container: "app", Kind: probe.Liveness}] = Results{Failed: 1}
			})
			time.Sleep(time.Minute)
			if got := w.last(PartEvents); got != "refused" {
				t.Errorf("after the failure: %q", got)
			}
			time.Sleep(3 * askAgainAfter)
			if refused == 2 {
				if got, s := w.last(PartEvents), w.o.Stats(); got != "<nil>" || s.Asked != 3 {
					t.Errorf("after an answer: %q, asked %d times", got, s.Asked)
				}
				return
			}
			if got := w.last(PartEvents); got != "refused" {
				t.Errorf("without an answer: %q", got)
			}
			w.change(func() { w.refused = errors.New("no answer") })
			time.Sleep(2 * pollEvery)
			if got := w.last(PartResults); got != "no answer" {
				t.Errorf("kubelet's counts: %q", got)
			}
			w.manager.RemovePod("u1")
			w.o.Changed()
			time.Sleep(time.Minute)
			if events, results := w.last(PartEvents), w.last(PartResults); events != "<nil>" || results != "<nil>" {
				t.Errorf("without probes: events %q, results %q", events, results)
			}
		})
	}
}
