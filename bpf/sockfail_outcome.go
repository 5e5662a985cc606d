package bpf

import (
	"errors"
	"fmt"
	"structs"

	"github.com/cilium/ebpf"
)

// SockOutcome is struct target_outcome: counts of the connections to a target that have ended, and
// data of the latest of them.
type SockOutcome struct {
	_         structs.HostLayout
	Succeeded uint64
	Failed    uint64
	StartNS   uint64 // when the latest one called connect(), since boot
	TookNS    uint64
	RTTMicros uint32 // smoothed; 0: never established
	Pad       uint32
}

// SockOutcomes reads outcomes by target ID. It is safe for concurrent use, also while its stem runs
// or is closed.
type SockOutcomes struct {
	m *ebpf.Map
}

// SockOutcomes returns the outcomes of the watched targets. The caller must close it.
func (l *Loaded) SockOutcomes() (*SockOutcomes, error) {
	// A descriptor of its own: the stem's may be closed while this one is read.
	m, err := l.maps[SockfailMapOutcomes].Clone()
	if err != nil {
		return nil, fmt.Errorf("outcomes of targets: %w", err)
	}
	return &SockOutcomes{m: m}, nil
}

// Of returns the outcome since the target is watched, and false if it is not watched.
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

// Close closes the descriptor. It must be the last call.
func (o *SockOutcomes) Close() error { return o.m.Close() }

// countOutcomes counts outcomes for exactly these targets. Those that are new, or whose ID belonged
// to another target (moved), start at 0.
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
