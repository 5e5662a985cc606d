package events

import (
	"slices"
	"time"
)

// saveFarBehind is how many entries the saved state may be behind even without a change: the
// journal must not drop entries that would be needed after a restart.
const saveFarBehind = 4096

// endWithin is how long entries wait for a save that ends series. A disk that takes longer is
// hanging: then the series go on.
const endWithin = time.Second

// saveResult is the result of saving a state.
type saveResult struct {
	seq  uint64
	at   time.Time // the time of the saved state
	over []*series // the series left out of it
	err  error
}

// needsSave reports whether the state has changed, or a series is over.
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

// snapshot returns the state as of the latest folded entry without the series that are over, and
// those series.
func (k *Sink) snapshot(now time.Time) (state, []*series) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change = false
	return k.table.state(k.cfg.Node, k.seq, now, k.cfg.Idle)
}

// write writes a state to the disk.
func (k *Sink) write(st state, over []*series, at time.Time) saveResult {
	err := k.file.Save(&st)
	if err == nil {
		k.cfg.Fault(StageSaved)
	}
	return saveResult{seq: st.Seq, at: at, over: over, err: err}
}

// startSave saves the current state, and returns the channel for the result. New entries need not
// wait for the disk unless series end: a series ends only when the file is written without it. No
// entry may be folded meanwhile, so that it counts for the same series after a kill. In that case
// startSave waits, and returns nil if the save has ended in time.
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

// saveEnded handles the result of a save. It reports whether the file lacks a series that has
// gone on meanwhile: then the next save is due at once.
func (k *Sink) saveEnded(r saveResult) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.err != nil {
		k.change = true
		k.cfg.Log.Error("can't save the state of Events", "error", r.err)
		return false
	}
	k.saved = r.seq
	gone := slices.DeleteFunc(slices.Clone(r.over), func(s *series) bool { return !s.over(r.at, k.cfg.Idle) })
	k.table.remove(gone)
	return len(gone) < len(r.over)
}

// save saves the state while no entries are folded.
func (k *Sink) save(now time.Time) error {
	st, over := k.snapshot(now)
	r := k.write(st, over, now)
	k.saveEnded(r)
	return r.err
}
