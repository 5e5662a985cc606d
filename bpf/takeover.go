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

// predecessor is what other builds left pinned: records that nobody has read.
type predecessor struct {
	dirs  []string // to be removed behind them
	rings []foreignRing
	// since is the boot time from which on this stem's records count: earlier ones are in
	// a ring of rings too. 0: none of them cuts.
	since uint64
}

// foreignRing is a ring that another build has filled.
type foreignRing struct {
	*Ring
	m *ebpf.Map
	// Its records count from one boot time until another: others are in another ring too. All
	// count where both builds' programs share their state: each fault is in the ring of one
	// of them.
	from, until uint64
}

// takeOver ends other builds' programs, now that this one's are attached. It can end at
// any point, and the next run does the rest: links go first, and records behind the cut
// that is noted before.
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
			continue // it is no folder of pins, and goes with the others
		}
		// From the cut on, this build counts too. Where both share their state, each fault is
		// counted by one of them until the other ends.
		sibling := slices.Contains(l.siblings, dir)
		if !sibling {
			l.unread = errors.Join(l.unread, l.takeCounts(dir, links))
		}
		for _, programs := range links {
			for _, path := range programs {
				_ = os.Remove(path) // the last reference: detaches
			}
		}
		if sibling {
			l.unread = errors.Join(l.unread, l.takeCounts(dir, links))
		}
	}
	return nil
}

// cutOf returns from which boot time on the records of a folder of pins count; 0: all do.
func (l *Loaded) cutOf(dir string) uint64 {
	lost, err := l.foreignMap(dir, mapLost)
	if lost == nil || err != nil {
		return 0
	}
	defer lost.Close()
	cut, err := lostElement(lost, cutAt)
	if err != nil {
		return 0 // it is too old to note one
	}
	return cut
}

// openRing opens the ring of another build, if it has one. The records of a build that is cut
// count until the next one's.
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

// Drain hands every record that was there when it was called to handle, oldest
// build first, and gives it back to the kernel after handle and then Settle have
// returned. It returns how many there were. A record is valid during the call it is
// given to.
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

// settleEvery is how many records are given back together: after a kill they are found
// again, which costs less than to settle each.
const settleEvery = 64

func (l *Loaded) drain(r *Ring, handle func(raw []byte)) int {
	n := 0
	back := func() {
		l.Settled()
		r.Commit()
	}
	// What comes meanwhile is left for the next time: a flood must not keep the
	// caller from its other work, nor from ending.
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

// remove unpins what was read to its end.
func (p *predecessor) remove() error {
	var errs []error
	for _, d := range p.dirs {
		if err := os.RemoveAll(d); err != nil {
			errs = append(errs, fmt.Errorf("unpin predecessor: %w", err))
		}
	}
	return errors.Join(errs...)
}

// close gives the rings back. What is not removed is there for the next run.
func (p *predecessor) close() error {
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.Close(), r.m.Close())
	}
	return errors.Join(errs...)
}
