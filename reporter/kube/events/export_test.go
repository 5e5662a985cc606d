package events

// Unbind removes the limits on the number of series.
func (k *Sink) Unbind() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table.max, k.table.burst = 1<<20, 1<<20
}
