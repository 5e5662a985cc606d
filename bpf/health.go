package bpf

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// RunCanary has the kernel write a canary record with this nonce to the stem's
// ring. That the record comes out again proves ring, reader and what follows.
func (l *Loaded) RunCanary(nonce uint64) error {
	ctx := make([]byte, 8)
	binary.NativeEndian.PutUint64(ctx, nonce)
	if _, err := l.programs[canaryProgram].Run(&ebpf.RunOptions{Context: ctx}); err != nil {
		return fmt.Errorf("run canary of %s: %w", l.Stem, err)
	}
	return nil
}

// RingFull returns how many records found the ring full since it was made.
func (l *Loaded) RingFull() (uint64, error) {
	var perCPU []uint64
	if err := l.maps[mapLost].Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("read losses of %s: %w", l.Stem, err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// Skipped returns how many runs of the stem's programs the kernel skipped
// because the program was running on that CPU already (kernels from 6.1 on;
// earlier ones let tracing programs nest).
func (l *Loaded) Skipped() (uint64, error) {
	var sum uint64
	for name, p := range l.programs {
		stats, err := p.Stats()
		if err != nil {
			return 0, fmt.Errorf("statistics of %s: %w", name, err)
		}
		sum += stats.RecursionMisses
	}
	return sum, nil
}

// CheckLinks verifies that the kernel still has every link of the stem.
func (l *Loaded) CheckLinks() error {
	for hook, lk := range l.links {
		if _, err := lk.Info(); err != nil {
			return fmt.Errorf("%s: hook %s is detached: %w", l.Stem, hook, err)
		}
	}
	return nil
}
