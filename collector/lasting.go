package collector

import "sync"

// requests are requests to report lasting faults again, each with an Emit of its own. The zero
// value is ready; it is safe for concurrent use.
type requests struct {
	mu    sync.Mutex
	emits []Emit
}

func (r *requests) add(emit Emit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emits = append(r.emits, emit)
}

// take returns the requests since the last call.
func (r *requests) take() []Emit {
	r.mu.Lock()
	defer r.mu.Unlock()
	emits := r.emits
	r.emits = nil
	return emits
}

// ReportLasting makes the sources report again, to emit, what they have reported and what still
// lasts: filesystems that refuse writes, stalled devices, hung tasks. They do so within seconds,
// while Run runs. It omits what is reported repeatedly anyway, such as gauges and failed
// connections. It does not block.
func (s *Sources) ReportLasting(emit Emit) {
	s.mounts.reportLasting(emit)
	s.stalls.asked.add(emit)
	for _, st := range s.stems {
		if h, ok := st.decoder.(*hungtask); ok {
			h.asked.add(emit)
		}
	}
}
