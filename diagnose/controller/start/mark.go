package start

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// mark is the version up to which Events were seen to. The next leader goes on behind it,
// so that it decides about none again that this one has decided about, and misses none.
type mark struct {
	mu      sync.Mutex
	reached string // by the watch; empty: it has not listed them yet
	// waits are Events that are not decided about, and how far the watch had come before.
	waits map[*corev1.Event]string
}

func newMark() *mark { return &mark{waits: map[*corev1.Event]string{}} }

// reach notes how far the watch has come.
func (m *mark) reach(version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = version
}

// take notes an Event that is to be decided about, and how far the watch has come with it;
// empty: no further, it is one of a list.
func (m *mark) take(ev *corev1.Event, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[ev] = m.reached
	if version != "" {
		m.reached = version
	}
}

// done notes one that was decided about, or is not to be.
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

// since returns behind which version the Events of a list are to be seen to; empty: all are.
// A list that is older than the mark is of an API server whose data was restored from
// before: the versions are another history's.
func (m *mark) since(listed string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached != "" && after(m.reached, listed) {
		m.reached = ""
	}
	return m.reached
}

// after reports whether a version is later than another. What is no version is.
func after(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
