package bpf

import (
	"errors"
	"fmt"
	"structs"

	"github.com/cilium/ebpf"
)

// SockOutcome is struct target_outcome: how the connections to a target went that have
// ended, and the latest of them.
type SockOutcome struct {
	_         structs.HostLayout
	Succeeded uint64
	Failed    uint64
	StartNS   uint64 // of the latest one's connect(), since boot
	TookNS    uint64
	RTTMicros uint32 // smoothed; 0: it was never established
	Pad       uint32
}

// SockOutcomes reads outcomes by the targets' IDs. It may be used from several
// goroutines at the same time, and while the stem it is of runs, or is closed.
type SockOutcomes struct {
	m *ebpf.Map
}

// SockOutcomes returns the outcomes of the targets that are watched, to be closed by
// the caller.
func (l *Loaded) SockOutcomes() (*SockOutcomes, error) {
	// A descriptor of its own: the stem's may be closed while this one is read.
	m, err := l.maps[SockfailMapOutcomes].Clone()
	if err != nil {
		return nil, fmt.Errorf("outcomes of targets: %w", err)
	}
	return &SockOutcomes{m: m}, nil
}

// Of returns what happened since the target is watched; false: it is not.
func (o *SockOutcomes) Of(id uint32) (SockOutcome, bool, error) {
	var out SockOutcome
	err := o.m.Lookup(id, &out)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return SockOutcome{}, false, nil
	}
	if err != nil {
		return SockOutcome{}, false, fmt.Errorf("outcome of target %d: %w", id, err)
	}
	return out, true, nil
}

// Close gives the descriptor back. It must be the last call.
func (o *SockOutcomes) Close() error { return o.m.Close() }

// countOutcomes has outcomes counted for exactly these targets: for those that are
// new, or whose number was another's, from 0.
func (l *Loaded) countOutcomes(ids, moved map[uint32]bool) error {
	m := l.maps[SockfailMapOutcomes]
	var errs []error
	var id uint32
	var out SockOutcome
	var gone []uint32
	counted := make(map[uint32]bool, len(ids))
	it := m.Iterate()
	for it.Next(&id, &out) {
		if counted[id] = ids[id] && !moved[id]; !counted[id] {
			gone = append(gone, id)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list outcomes: %w", err)
	}
	for _, id := range gone {
		if err := m.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("stop counting outcomes: %w", err))
		}
	}
	for id := range ids {
		if counted[id] {
			continue
		}
		if err := m.Put(id, &SockOutcome{}); err != nil {
			errs = append(errs, fmt.Errorf("count outcomes: %w", err))
		}
	}
	return errors.Join(errs...)
}
