package pods

import (
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// SetEvery sets how often Run polls. Call it before Run.
func (k *Kubelet) SetEvery(every time.Duration) { k.every = every }

// Pass acts as if d more had passed since the latest incomplete answer.
func (k *Kubelet) Pass(d time.Duration) { k.partial = k.partial.Add(-d) }

// Figures are a source's counters.
type Figures struct{ Reads, Failures, Pods, Faulty, At float64 }

// Figures returns the counters.
func (f *figures) Figures() Figures {
	value := testutil.ToFloat64
	return Figures{value(f.reads), value(f.failures), value(f.pods), value(f.faulty), value(f.at)}
}

// Gone returns how many deleted pods are remembered.
func (w *Watch) Gone() int { return w.gone.size() }

func (g *gone) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
