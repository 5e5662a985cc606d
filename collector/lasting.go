package collector

import "sync"

// requests are to report again what lasts, each to an Emit of its own. The zero value is ready;
// it is safe for concurrent use.
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

// ReportLasting has the sources report once more, to emit, what they have reported and what
// lasts: filesystems that refuse writes, stalled devices, hung tasks. They do so within seconds,
// while Run runs. What is reported again and again by itself, such as gauges and failed
// connections, is left out. It does not block.
func (s *Sources) ReportLasting(emit Emit) {
	s.mounts.reportLasting(emit)
	s.stalls.asked.add(emit)
	for _, st := range s.stems {
		if h, ok := st.decoder.(*hungtask); ok {
			h.asked.add(emit)
		}
	}
}
