package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
)

// RunCanary makes the kernel write a canary record with this nonce to the stem's ring. If the
// record is read again, the ring, its reader and the later stages work.
func (l *Loaded) RunCanary(nonce uint64) error {
	ctx := make([]byte, 8)
	binary.NativeEndian.PutUint64(ctx, nonce)
	if _, err := l.programs[canaryProgram].Run(&ebpf.RunOptions{Context: ctx}); err != nil {
		return fmt.Errorf("run canary of %s: %w", l.Stem, err)
	}
	return nil
}

// Elements of the map "lost".
const (
	lostRingFull     uint32 = iota // counted by the programs
	reportedRingFull               // written by the agent: how much of it is reported, minus what other builds lost
	reportedSkipped
	cutAt // boot time from which on this build's records are read, or notYet; see takeOver
)

// Losses counts the records that a stem lost and that are not reported yet.
type Losses struct {
	// RingFull counts records for which the ring was full.
	RingFull uint64
	// Skipped counts runs that the kernel skipped because the program was running on that CPU
	// already (kernels from 6.1 on; earlier ones let tracing programs nest).
	Skipped uint64
	// Unread is the error if another build's records, losses or counts can't be read.
	Unread error
}

// RingFull returns how many records found the ring full since the ring was created.
func (l *Loaded) RingFull() (uint64, error) { return lostElement(l.maps[mapLost], lostRingFull) }

// Skips counts the runs of one program that the kernel skipped since it was loaded.
type Skips struct {
	Program string
	Runs    uint64
	// Harmless: skipped runs of the program lose no record. It only adds details to other programs'
	// records.
	Harmless bool
}

// Skips returns the skipped runs of each program. It is safe for concurrent use.
func (l *Loaded) Skips() ([]Skips, error) {
	l.programsMu.Lock()
	defer l.programsMu.Unlock()
	all := make([]Skips, 0, len(l.programs))
	for name, p := range l.programs {
		stats, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("statistics of %s: %w", name, err)
		}
		all = append(all, Skips{Program: name, Runs: stats.RecursionMisses, Harmless: l.harmless(name, l.serves)})
	}
	return all, nil
}

// Skipped returns how many runs of the stem's programs the kernel skipped, except harmless ones.
func (l *Loaded) Skipped() (sum uint64, err error) {
	all, err := l.Skips()
	for _, s := range all {
		if !s.Harmless {
			sum += s.Runs
		}
	}
	return sum, err
}

// harmless reports whether a skipped run of a program loses no record, because all hooks that it
// serves only add to records of others.
func (l *Loaded) harmless(program string, serves func(hook, program string) bool) bool {
	adds := false
	for _, h := range l.stem.hooks {
		if !slices.ContainsFunc(h.variants, func(v variant) bool { return v.program == program }) {
			continue
		}
		if !h.adds && serves(h.name, program) {
			return false
		}
		adds = adds || h.adds
	}
	return adds
}

// Losses returns what was lost since the last [Loaded.ReportedLosses], by this run or by an earlier
// one that left its pins.
func (l *Loaded) Losses() (Losses, error) {
	out := Losses{Unread: l.unread}
	ringFull, errFull := l.RingFull()
	skipped, errSkipped := l.Skipped()
	reportedFull, errReportedFull := lostElement(l.maps[mapLost], reportedRingFull)
	reportedSkip, errReportedSkip := lostElement(l.maps[mapLost], reportedSkipped)
	if err := errors.Join(errFull, errSkipped, errReportedFull, errReportedSkip); err != nil {
		return out, err
	}
	out.RingFull, out.Skipped = unreported(ringFull, reportedFull), unreported(skipped, reportedSkip)
	return out, nil
}

// unreported returns how much of a total is not reported yet. The reported count may be negative
// (losses of other builds) or exceed the total (while a hook is detached, its program is harmless).
func unreported(total, reported uint64) uint64 {
	if n := total - reported; n <= math.MaxInt64 {
		return n
	}
	return 0
}

// forgetSkips resets the count of reported skips when the stem opens, if it exceeds the total: a
// program that was loaded again, or is not loaded yet, counts from 0. Skips of other programs may
// be reported twice, but never get lost.
func (l *Loaded) forgetSkips() error {
	skipped, err := l.Skipped()
	if err != nil {
		return err
	}
	reported, err := lostElement(l.maps[mapLost], reportedSkipped)
	if err != nil || skipped-reported <= math.MaxInt64 {
		return err // it may be negative
	}
	return noteLost(l.maps[mapLost], reportedSkipped, 0)
}

// ReportedLosses records that these losses were reported. If the agent is killed before, they are
// reported twice rather than never.
func (l *Loaded) ReportedLosses(reported Losses) error {
	l.unread = nil
	return errors.Join(l.raiseNote(reportedRingFull, reported.RingFull), l.raiseNote(reportedSkipped, reported.Skipped))
}

// raiseNote adds to the reported count. It never sets the count to the total, which is lower while
// a program counts as harmless, see [unreported].
func (l *Loaded) raiseNote(note uint32, by uint64) error {
	reported, err := lostElement(l.maps[mapLost], note)
	if err != nil || by == 0 {
		return err
	}
	return noteLost(l.maps[mapLost], note, reported+by)
}

// lostElement returns the sum of an element of the map "lost" over all CPUs.
func lostElement(m *ebpf.Map, i uint32) (sum uint64, err error) {
	var perCPU []uint64
	if err := m.Lookup(i, &perCPU); err != nil {
		return 0, fmt.Errorf("read losses: %w", err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// noteLost stores a total in the first CPU's value of an element.
func noteLost(m *ebpf.Map, i uint32, total uint64) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	perCPU := make([]uint64, cpus)
	perCPU[0] = total
	if err := m.Put(i, perCPU); err != nil {
		return fmt.Errorf("record losses: %w", err)
	}
	return nil
}

// CheckLinks verifies that the kernel still has every link of the stem.
func (l *Loaded) CheckLinks() error {
	for hook, lk := range l.links {
		// Before 5.15 a kprobe's link is a process' file: nobody can detach it, and it has no info.
		if _, err := lk.Info(); err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("%s: hook %s is detached: %w", l.Stem, hook, err)
		}
	}
	return nil
}
