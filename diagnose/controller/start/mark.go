package start

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// mark is the resourceVersion up to which Events were handled. The next leader continues after it,
// so that no Event is decided on twice or missed.
type mark struct {
	mu      sync.Mutex
	reached string // by the watch; empty: it has not listed yet
	// waits has the Events that are not decided on yet, each with the version that the watch had
	// reached before.
	waits map[*corev1.Event]string
}

func newMark() *mark { return &mark{waits: map[*corev1.Event]string{}} }

// reach records the version that the watch has reached.
func (m *mark) reach(version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = version
}

// take records an Event that is to be decided on, and the version that the watch has reached with
// it; empty: no new version, the Event comes from a list.
func (m *mark) take(ev *corev1.Event, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[ev] = m.reached
	if version != "" {
		m.reached = version
	}
}

// done removes an Event that was decided on, or dropped.
func (m *mark) done(ev *corev1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, ev)
}

// version returns the mark; empty: there is none.
func (m *mark) version() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lowest := m.reached
	for _, before := range m.waits {
		if before == "" || !after(before, lowest) {
			lowest = before
		}
	}
	return lowest
}

// since returns the version after which the Events of a list must be handled; empty: all of them.
// If the list is older than the mark, the API server's data was restored from a backup and versions
// are not comparable, so the mark is reset.
func (m *mark) since(listed string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached != "" && after(m.reached, listed) {
		m.reached = ""
	}
	return m.reached
}

// after reports whether a version is later than another. An invalid version counts as later.
func after(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
