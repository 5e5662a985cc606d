package events

import "time"

// saveFarBehind is how many entries the saved state may be behind without a change:
// the journal must not drop entries that it would ask for.
const saveFarBehind = 4096

// saveResult is what became of a state that was to be saved.
type saveResult struct {
	seq uint64
	err error
}

// needsSave reports whether there is something new in the state, or a series is over.
func (k *Sink) needsSave(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.change || k.seq-k.saved > saveFarBehind {
		return true
	}
	for _, s := range k.table.list {
		if s.over(now, k.cfg.Idle) {
			return true
		}
	}
	return false
}

// snapshot returns the state as of the latest entry folded, without the series that
// are over.
func (k *Sink) snapshot(now time.Time) (state, []*series) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change = false
	return k.table.state(k.cfg.Node, k.seq, now, k.cfg.Idle)
}

// write puts a state on the disk. Only then series end, and no entry may be folded
// meanwhile if some do: so an entry counts for the same series after a kill.
func (k *Sink) write(st state, over []*series) saveResult {
	if err := k.file.Save(&st); err != nil {
		k.mu.Lock()
		k.change = true
		k.mu.Unlock()
		return saveResult{err: err}
	}
	k.cfg.Fault(StageSaved)
	if len(over) > 0 {
		k.mu.Lock()
		k.table.remove(over)
		k.mu.Unlock()
	}
	return saveResult{seq: st.Seq}
}

// saveEnded takes the result of a save into account.
func (k *Sink) saveEnded(r saveResult) {
	if r.err != nil {
		k.cfg.Log.Error("state of Events not saved", "error", r.err)
		return
	}
	k.saved = r.seq
}

// save saves the state while nothing is folded.
func (k *Sink) save(now time.Time) error {
	r := k.write(k.snapshot(now))
	if r.err == nil {
		k.saved = r.seq
	}
	return r.err
}
