package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// predecessor is what other builds left pinned: records that are still unread.
type predecessor struct {
	dirs  []string // removed once all is read
	rings []foreignRing
	// since is the boot time from which on this stem's own records are read: earlier ones are also
	// in one of the rings above. 0: there is no cut.
	since uint64
}

// foreignRing is a ring that another build wrote.
type foreignRing struct {
	*Ring
	m *ebpf.Map
	// Records are read if their boot time is in [from, until): others are in another ring too. All
	// are read if both builds' programs share their state, because then each fault is in only one
	// of the rings.
	from, until uint64
}

// takeOver detaches other builds' programs after this build's are attached. If it is interrupted at
// any point, the next run completes it: the cut is stored before links are removed, and both before
// any records.
func (l *Loaded) takeOver(pins *PinRoot, others []string) error {
	p := &predecessor{}
	layout, err := l.stem.layout(l.spec)
	if err != nil {
		return err
	}
	if p.dirs, err = pins.staleStates(l.Stem, layout); err != nil {
		return err
	}
	if len(p.dirs)+len(others) == 0 {
		return nil
	}
	l.predecessor = p
	cuts := map[string]uint64{} // by folder, of builds that share no state with this one
	for _, id := range others {
		dir := pins.dir(l.Stem, id)
		p.dirs = append(p.dirs, dir)
		if !slices.Contains(l.siblings, dir) {
			cuts[dir] = l.cutOf(dir)
		}
	}
	if len(cuts) > 0 {
		if p.since, err = l.lostElement(cutAt); err != nil {
			return err
		}
		if p.since == 0 {
			p.since = bootNow()
			if err := l.noteLost(cutAt, p.since); err != nil {
				return err
			}
		}
	}
	for _, id := range others {
		p.openRing(pins.dir(l.Stem, id), cuts)
	}
	slices.SortStableFunc(p.rings, func(a, b foreignRing) int { return cmp.Compare(a.from, b.from) })
	for _, id := range others {
		dir := pins.dir(l.Stem, id)
		links, err := pinnedLinks(dir)
		if err != nil {
			continue // not a pin folder; it is removed with the others
		}
		// From the cut on, this build counts too. Builds that share their state count each fault
		// once, so the other build's counts are final only when it is detached.
		sibling := slices.Contains(l.siblings, dir)
		if !sibling {
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

// cutOf returns the boot time from which on the records in a pin folder are read; 0: all are.
func (l *Loaded) cutOf(dir string) uint64 {
	lost, err := l.foreignMap(dir, mapLost)
	if lost == nil || err != nil {
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
func (p *predecessor) openRing(dir string, cuts map[string]uint64) {
	m, err := ebpf.LoadPinnedMap(mapPin(dir, mapEvents), nil)
	if err != nil {
		return
	}
	r, err := OpenRing(m)
	if err != nil {
		_ = m.Close()
		return
	}
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
			if h, err := view[Header](raw); err != nil || from <= h.BootNS && h.BootNS < until {
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
		err = l.noteLost(cutAt, 0)
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

// remove unpins what was read completely.
func (p *predecessor) remove() error {
	var errs []error
	for _, d := range p.dirs {
		if err := os.RemoveAll(d); err != nil {
			errs = append(errs, fmt.Errorf("unpin predecessor: %w", err))
		}
	}
	return errors.Join(errs...)
}

// close closes the rings. What is not removed is kept for the next run.
func (p *predecessor) close() error {
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.Close(), r.m.Close())
	}
	return errors.Join(errs...)
}
