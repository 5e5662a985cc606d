package pods

// Gone returns how many deleted pods are remembered.
func (w *Watch) Gone() int { return w.gone.size() }

func (g *gone) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
