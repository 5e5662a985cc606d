package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// predecessor is what other builds left pinned: records that are still unread.
type predecessor struct {
	dirs  []string // removed once all is read
	rings []foreignRing
	// since is the boot time from which this stem's own records are read: earlier records are also
	// in one of the rings above. 0: there is no cut.
	since uint64
}

// foreignRing is a ring that another build wrote.
type foreignRing struct {
	*Ring
	m *ebpf.Map
	// Records are read if their boot time is in [from, until): others are in another ring too. All
	// are read if both builds share their state: then each fault is in one of the rings.
	from, until uint64
}

// notYet is stored as the cut of a build that has not taken over from the others yet. These are
// attached and record the same faults, so its records are read only once it has taken over.
const notYet = math.MaxUint64

// takeOver detaches other builds' programs after this build's are attached. If it is interrupted,
// the next run completes it: the cut is stored before links are removed, both before records.
func (l *Loaded) takeOver(pins *PinRoot, others []string) error {
	p := &predecessor{}
	layout, err := l.stem.layout(l.spec)
	if err != nil {
		return err
	}
	if p.dirs, err = pins.staleStates(l.Stem, layout); err != nil {
		return err
	}
	cuts := map[string]uint64{} // by folder, of builds that share no state with this one
	var unused []string         // folders of builds that never took over: others count the same
	p.dirs = append(p.dirs, others...)
	for _, dir := range others {
		switch cut := l.cutOf(dir); {
		case slices.Contains(l.siblings, dir):
		case cut == notYet:
			unused = append(unused, dir)
		default:
			cuts[dir] = cut
		}
	}
	if p.since, err = l.storeCut(len(cuts) > 0); err != nil {
		return err
	}
	if len(p.dirs) == 0 {
		return nil
	}
	l.predecessor = p
	for _, dir := range others {
		if !slices.Contains(unused, dir) {
			l.unread = errors.Join(l.unread, l.openRing(dir, cuts))
		}
	}
	slices.SortStableFunc(p.rings, func(a, b foreignRing) int { return cmp.Compare(a.from, b.from) })
	for _, dir := range others {
		links, err := pinnedLinks(dir)
		if err != nil {
			continue // not a pin folder; it is removed with the others
		}
		// From the cut on, this build counts too. Builds that share their state count each fault
		// once, so the other build's counts are final only when it is detached.
		sibling := slices.Contains(l.siblings, dir)
		if !sibling && !slices.Contains(unused, dir) {
			l.unread = errors.Join(l.unread, l.takeCounts(dir, links))
		}
		for _, programs := range links {
			for _, path := range programs {
				_ = os.Remove(path) // the last reference: this detaches
			}
		}
		if sibling {
			l.unread = errors.Join(l.unread, l.takeCounts(dir, links))
		}
	}
	return nil
}

// storeCut stores this build's cut, unless an earlier run has stored it, and returns it. If no other
// build's records are to be read, there is none: it returns 0.
func (l *Loaded) storeCut(needed bool) (uint64, error) {
	cut, err := lostElement(l.maps[mapLost], cutAt)
	switch {
	case err != nil:
		return 0, err
	case !needed && cut == notYet:
		return 0, noteLost(l.maps[mapLost], cutAt, 0)
	case !needed:
		return 0, nil
	case cut == 0 || cut == notYet:
		cut = bootNow()
		return cut, noteLost(l.maps[mapLost], cutAt, cut)
	}
	return cut, nil
}

// cutOf returns the boot time from which a pin folder's records are read; 0: all; [notYet]: none.
func (l *Loaded) cutOf(dir string) uint64 {
	lost, err := l.foreignMap(dir, mapLost)
	if err != nil {
		return 0
	}
	if lost == nil {
		if _, err := os.Stat(mapPin(dir, mapEvents)); errors.Is(err, fs.ErrNotExist) {
			return notYet // killed before it attached anything
		}
		return 0
	}
	defer lost.Close()
	cut, err := lostElement(lost, cutAt)
	if err != nil {
		return 0 // too old to store one
	}
	return cut
}

// openRing opens the ring of another build, if it has one. If that build has a cut, its records are
// read up to the next build's cut.
func (l *Loaded) openRing(dir string, cuts map[string]uint64) error {
	m, err := l.foreignMap(dir, mapEvents)
	if m == nil {
		return err
	}
	r, err := OpenRing(m)
	if err != nil {
		return errors.Join(fmt.Errorf("records of another build: %w", err), m.Close())
	}
	p := l.predecessor
	ring := foreignRing{Ring: r, m: m, until: math.MaxUint64}
	if from, cut := cuts[dir]; cut {
		ring.from, ring.until = from, p.since
		for _, next := range cuts {
			if next > from {
				ring.until = min(ring.until, next)
			}
		}
	}
	p.rings = append(p.rings, ring)
	return nil
}

// Drain passes every record that exists when it is called to handle, oldest build first. After
// handle and then Settle have returned, it commits the record to the kernel. It returns the number
// of records. A record is valid during handle only.
func (l *Loaded) Drain(handle func(raw []byte)) (int, error) {
	p := l.predecessor
	if p == nil {
		return l.drain(l.ring, handle), nil
	}
	n := 0
	drain := func(r *Ring, from, until uint64) {
		n += l.drain(r, func(raw []byte) {
			if h, err := View[Header](raw); err != nil || from <= h.BootNS && h.BootNS < until {
				handle(raw)
			}
		})
	}
	for _, r := range p.rings {
		drain(r.Ring, r.from, r.until)
	}
	drain(l.ring, p.since, math.MaxUint64)
	l.predecessor = nil
	err := errors.Join(p.remove(), p.close())
	if err == nil && p.since != 0 {
		err = noteLost(l.maps[mapLost], cutAt, 0)
	}
	return n, err
}

// Settled calls Settle.
func (l *Loaded) Settled() {
	if l.Settle != nil {
		l.Settle()
	}
}

// settleEvery is how many records are committed together. After a kill these are read again, which
// costs less than to settle each one.
const settleEvery = 64

func (l *Loaded) drain(r *Ring, handle func(raw []byte)) int {
	n := 0
	back := func() {
		l.Settled()
		r.Commit()
	}
	// Records that arrive meanwhile are left for the next call: a flood must not keep the caller
	// from its other work, or from stopping.
	for end := r.produced().Load(); r.next < end; n++ {
		raw := r.Next()
		if raw == nil {
			break
		}
		handle(raw)
		if n%settleEvery == settleEvery-1 {
			back()
		}
	}
	if n%settleEvery > 0 {
		back()
	}
	r.Commit() // discarded records at the end
	return n
}

// remove unpins the rings that were read completely.
func (p *predecessor) remove() error {
	var errs []error
	for _, d := range p.dirs {
		if err := os.RemoveAll(d); err != nil {
			errs = append(errs, fmt.Errorf("unpin predecessor: %w", err))
		}
	}
	return errors.Join(errs...)
}

// close closes the rings. Rings that were not removed stay pinned for the next run.
func (p *predecessor) close() error {
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.Close(), r.m.Close())
	}
	return errors.Join(errs...)
}

// takeCounts takes over the losses and counts that another build did not report, from that build's
// pin folder. It subtracts them from the numbers that this build notes as reported, and marks them
// as reported in the other build's notes. If the agent is killed in between, they are taken over
// twice rather than never. links are the other build's links.
func (l *Loaded) takeCounts(dir string, links map[string]map[string]string) error {
	lost, err := l.foreignMap(dir, mapLost)
	if lost == nil {
		return err
	}
	defer lost.Close()
	full, err := lostElement(lost, lostRingFull)
	if err == nil {
		err = l.takeLosses(lost, reportedRingFull, full)
	}
	skipped, skipErr := l.foreignSkips(dir, links)
	if skipErr == nil {
		skipErr = l.takeLosses(lost, reportedSkipped, skipped)
	}
	if l.stem.takeCounts != nil {
		err = errors.Join(err, l.stem.takeCounts(l, dir))
	}
	return errors.Join(err, skipErr)
}

// takeLosses takes over the part of a total that the other build has not reported.
func (l *Loaded) takeLosses(from *ebpf.Map, note uint32, total uint64) error {
	reported, err := lostElement(from, note)
	if err != nil {
		return err
	}
	own, err := lostElement(l.maps[mapLost], note)
	if err != nil {
		return err
	}
	n := unreported(total, reported)
	if n == 0 {
		return nil
	}
	return errors.Join(noteLost(l.maps[mapLost], note, own-n), noteLost(from, note, total))
}

// foreignSkips returns [Loaded.Skipped] of another build.
func (l *Loaded) foreignSkips(dir string, links map[string]map[string]string) (sum uint64, err error) {
	pins, err := filepath.Glob(programPin(dir, "*"))
	if err != nil {
		return 0, err
	}
	serves := func(hook, program string) bool { return links[hook][program] != "" }
	for _, pin := range pins {
		name := strings.TrimPrefix(pin, programPin(dir, ""))
		p, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			return 0, fmt.Errorf("program %s: %w", name, err)
		}
		stats, err := p.Stats()
		if err := errors.Join(err, p.Close()); err != nil {
			return 0, fmt.Errorf("statistics of %s: %w", name, err)
		}
		if !l.harmless(name, serves) {
			sum += stats.RecursionMisses
		}
	}
	return sum, nil
}

// foreignMap opens a map of another build, which must match this build's except in size. It returns
// nil without an error if the other build has no such map.
func (l *Loaded) foreignMap(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(mapPin(dir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		like := l.spec.Maps[name].Copy()
		like.MaxEntries = m.MaxEntries()
		if err = like.Compatible(m); err != nil {
			err = errors.Join(err, m.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("map %s of another build: %w", name, err)
	}
	return m, nil
}

// takeStorms takes over the disk errors that another build counted without a record.
func takeStorms(l *Loaded, dir string) error {
	storms, err := l.foreignMap(dir, mapStorms)
	if storms == nil {
		return err
	}
	defer storms.Close()
	reported, err := l.foreignMap(dir, mapStormsReported)
	if reported == nil {
		return err
	}
	defer reported.Close()
	all, err := contents[DiskErrorKind, diskStorm](storms)
	if err != nil {
		return fmt.Errorf("read storms of disk errors: %w", err)
	}
	for kind, storm := range all {
		already, err := reportedStorm(reported, &kind)
		if err != nil {
			return err
		}
		n := unreported(storm.More, already)
		if n == 0 {
			continue
		}
		own, err := reportedStorm(l.maps[mapStormsReported], &kind)
		if err != nil {
			return err
		}
		// The storm continues here, unless this build has already started one.
		goesOn := diskStorm{Began: storm.Began, Records: storm.Records}
		if err := l.maps[mapStorms].Update(&kind, &goesOn, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("take over a storm of disk errors: %w", err)
		}
		if err := errors.Join(l.maps[mapStormsReported].Put(&kind, own-n), reported.Put(&kind, storm.More)); err != nil {
			return fmt.Errorf("take over a storm of disk errors: %w", err)
		}
	}
	return nil
}
