package observe

import (
	"context"
	"fmt"
	"slices"
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
