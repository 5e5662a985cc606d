package collector

import "time"

const (
	// overflowsEvery is how often the counters of the targets' namespaces are read, of at most
	// maxOverflows of them.
	overflowsEvery = 5 * time.Second
	maxOverflows   = 256
)

// overflowSamples are the last two readings of one namespace's counter, so that one of them
// precedes any recent connection.
type overflowSamples struct {
	last, before     uint64
	lastAt, beforeAt time.Time
}

// sample reads the overflow counters of the namespaces that contain targets.
func (p *prober) sample(now time.Time, targets func(fn func(Target))) {
	if now.Sub(p.overflowsAt) < overflowsEvery {
		return
	}
	p.overflowsAt = now
	want := map[uint32]bool{}
	add := func(inode uint32) {
		if inode != 0 && len(want) < maxOverflows {
			want[inode] = true
		}
	}
	targets(func(t Target) {
		add(t.TargetNetNS)
		if t.Address.IsLoopback() {
			add(t.NetNS)
		}
	})
	for _, h := range p.homes.Values() {
		add(h.inode)
	}
	for inode := range p.overflows {
		if !want[inode] {
			delete(p.overflows, inode)
		}
	}
	for inode := range want {
		n, ok := p.readOverflows(inode)
		if !ok {
			continue
		}
		s := p.overflows[inode]
		if s == nil {
			p.overflows[inode] = &overflowSamples{last: n, lastAt: now}
			continue
		}
		s.before, s.beforeAt = s.last, s.lastAt
		s.last, s.lastAt = n, now
	}
}

func (p *prober) readOverflows(inode uint32) (uint64, bool) {
	pid := p.namespaces.Process(inode)
	if pid == 0 {
		return 0, false
	}
	n, err := p.fs.ListenOverflows(pid)
	return n, err == nil
}

// overflowsSince returns how often an accept queue of the namespace overflowed in a period that
// begins before started, and its length. It returns 0 if no reading is that old.
func (p *prober) overflowsSince(inode uint32, started time.Time) (uint64, time.Duration) {
	s := p.overflows[inode]
	if s == nil {
		return 0, 0
	}
	base, at := s.last, s.lastAt
	if at.After(started) {
		base, at = s.before, s.beforeAt
	}
	if at.IsZero() || at.After(started) {
		return 0, 0
	}
	n, ok := p.readOverflows(inode)
	if !ok || n <= base {
		return 0, 0
	}
	return n - base, time.Since(at)
}
