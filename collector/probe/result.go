package probe

import "sync"

// Result is the result that a worker holds for its container, according to the thresholds.
type Result int

// The results.
const (
	Unknown Result = iota
	Success
	Failure
)

// String returns the result as used in metrics.
func (r Result) String() string {
	switch r {
	case Success:
		return "successful"
	case Failure:
		return "failed"
	}
	return "unknown"
}

// initial returns the result of a container that was not probed yet: it counts as alive and as
// not ready.
func (k Kind) initial() Result {
	switch k {
	case Liveness:
		return Success
	case Readiness:
		return Failure
	}
	return Unknown
}

// Update is a result that has changed.
type Update struct {
	ContainerID string
	Result      Result
}

// maxUpdates covers some seconds of changes on a node where everything fails at once: a reader
// that is further behind must read all results anyway.
const maxUpdates = 256

// Results has the results of one kind by container ID, as in the pod's status (with the runtime).
// It is safe for concurrent use.
type Results struct {
	mu      sync.Mutex
	byID    map[string]Result
	updates chan Update // nil until Updates is called
	dropped uint64
}

// Get returns the result of a container, or false if it has none.
func (r *Results) Get(containerID string) (Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result, ok := r.byID[containerID]
	return result, ok
}

// Set stores a result, sends an update if it has changed, and reports whether it has.
func (r *Results) Set(containerID string, result Result) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.byID[containerID]; ok && before == result {
		return false
	}
	r.byID[containerID] = result
	if r.updates == nil {
		return true
	}
	select {
	case r.updates <- Update{ContainerID: containerID, Result: result}:
	default:
		r.dropped++
	}
	return true
}

// Remove removes the result of a container without an update.
func (r *Results) Remove(containerID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, containerID)
}

// Updates returns the channel of changes since the first call; all callers share one channel. A
// change that does not fit into it is dropped and counted. It is never closed.
func (r *Results) Updates() <-chan Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.updates == nil {
		r.updates = make(chan Update, maxUpdates)
	}
	return r.updates
}

// Dropped returns how many updates did not fit into the channel.
func (r *Results) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}
