package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// predecessor is what another build left pinned: records that nobody has read.
type predecessor struct {
	dirs  []string
	maps  []*ebpf.Map
	rings []*Ring
}

// takeOver ends other builds' programs, now that this one's are attached.
// From the cut on, every fault is in this stem's ring; before it, in theirs.
func (l *Loaded) takeOver(pins *PinRoot, others []string) {
	p := &predecessor{}
	l.since = bootNow()
	for _, id := range others {
		dir := pins.dir(l.Stem, id)
		if m, err := ebpf.LoadPinnedMap(mapPin(dir, mapEvents), nil); err == nil {
			if r, err := OpenRing(m); err == nil {
				p.maps, p.rings = append(p.maps, m), append(p.rings, r)
			} else {
				_ = m.Close()
			}
		}
		if links, err := pinnedLinks(dir); err == nil {
			for _, programs := range links {
				for _, path := range programs {
					_ = os.Remove(path) // the last reference: detaches
				}
			}
		}
		p.dirs = append(p.dirs, dir)
	}
	l.predecessor = p
}

// Drain hands every record that was there when it was called to handle, oldest
// build first, and gives it back to the kernel after handle has returned. It
// returns how many there were. A record is valid during the call it is given to.
func (l *Loaded) Drain(handle func(raw []byte)) (int, error) {
	n := 0
	var err error
	if l.predecessor != nil {
		for _, r := range l.predecessor.rings {
			n += drain(r, func(raw []byte) {
				if h, err := view[Header](raw); err == nil && h.BootNS >= l.since {
					return // in our own ring as well
				}
				handle(raw)
			})
		}
		err = l.predecessor.close()
		l.predecessor = nil
	}
	return n + drain(l.ring, func(raw []byte) {
		if h, err := view[Header](raw); err == nil && h.BootNS < l.since {
			return // in the predecessor's ring as well
		}
		handle(raw)
	}), err
}

func drain(r *Ring, handle func(raw []byte)) int {
	n := 0
	// What comes meanwhile is left for the next time: a flood must not keep the
	// caller from its other work, nor from ending.
	for end := r.produced().Load(); r.next < end; n++ {
		raw := r.Next()
		if raw == nil {
			break
		}
		handle(raw)
		r.Commit()
	}
	r.Commit() // discarded records at the end
	return n
}

func (p *predecessor) close() error {
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.Close())
	}
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	for _, d := range p.dirs {
		if err := os.RemoveAll(d); err != nil {
			errs = append(errs, fmt.Errorf("unpin predecessor: %w", err))
		}
	}
	return errors.Join(errs...)
}
