package probe

// Results returns the results of a kind, or nil for an unknown kind.
func (m *Manager) Results(k Kind) *Results { return m.results[k] }

// Pods returns all pods, as last added; they must not be changed.
func (m *Manager) Pods() []*Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := make([]*Pod, 0, len(m.pods))
	for _, e := range m.pods {
		pods = append(pods, e.pod)
	}
	return pods
}

// Pod returns one pod, as last added; it must not be changed.
func (m *Manager) Pod(uid string) (*Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil {
		return nil, false
	}
	return e.pod, true
}

// started reports whether a container has started: it is running and its startup probe, if any,
// has succeeded; mu is held.
func (m *Manager) started(p *Pod, c *Container) bool {
	if c.State != Running {
		return false
	}
	if result, ok := m.results[Startup].Get(c.ID); ok {
		return result == Success
	}
	return c.Started || m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Startup}] == nil
}
