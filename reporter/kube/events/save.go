package events

import (
	"slices"
	"time"
)

// saveFarBehind is how many entries the saved state may be behind without a change:
// the journal must not drop entries that it would ask for.
const saveFarBehind = 4096

// endWithin is how long entries wait for a save that ends series. A disk that takes longer
// hangs: then the series go on.
const endWithin = time.Second

// saveResult is what became of a state that was to be saved.
type saveResult struct {
	seq  uint64
	at   time.Time // when the state was as it was saved
	over []*series // that it was saved without
	err  error
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

// write puts a state on the disk.
func (k *Sink) write(st state, over []*series, at time.Time) saveResult {
	err := k.file.Save(&st)
	if err == nil {
		k.cfg.Fault(StageSaved)
	}
	return saveResult{seq: st.Seq, at: at, over: over, err: err}
}

// startSave saves the state as it is now, and returns where the result comes. What comes
// meanwhile need not wait for the disk, unless series end: only when the file is written
// without them they do, and no entry may be folded meanwhile, so that it counts for the same
// series after a kill. It returns nil where it has waited.
func (k *Sink) startSave(now time.Time) <-chan saveResult {
	st, over := k.snapshot(now)
	result := make(chan saveResult, 1)
	go func() { result <- k.write(st, over, now) }()
	if len(over) == 0 {
		return result
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case r := <-result:
		k.saveEnded(r)
		return nil
	case <-timer.C:
		return result
	}
}

// saveEnded takes the result of a save into account, and reports whether the file lacks a
// series that has gone on meanwhile: then the next save is due at once.
func (k *Sink) saveEnded(r saveResult) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.err != nil {
		k.change = true
		k.cfg.Log.Error("state of Events not saved", "error", r.err)
		return false
	}
	k.saved = r.seq
	gone := slices.DeleteFunc(slices.Clone(r.over), func(s *series) bool { return !s.over(r.at, k.cfg.Idle) })
	k.table.remove(gone)
	return len(gone) < len(r.over)
}

// save saves the state while nothing is folded.
func (k *Sink) save(now time.Time) error {
	st, over := k.snapshot(now)
	r := k.write(st, over, now)
	k.saveEnded(r)
	return r.err
}
