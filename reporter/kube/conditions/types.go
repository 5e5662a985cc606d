package conditions

import "slices"

// Retire adds types that an earlier agent of this node has, or may have, in the API, such as
// those listed in its Lease. Types that are not in the detector's next list are removed. Types
// that can't be ours are ignored. It does not block.
func (p *Patcher) Retire(types []string) {
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return CheckType(t) != nil })
	p.mu.Lock()
	p.retired = append(p.retired, types...)
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Types returns the types that we have, or may have, in the API, sorted: those that are set and
// those that are still to be removed, without yielded types. An agent that ends leaves these
// types in the API.
func (p *Patcher) Types() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Concat(p.types, p.retired)
	for _, c := range p.list {
		out = append(out, c.Type)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(t string) bool { return slices.Contains(p.stats.Yielded, t) })
}

// retire adds the types of an earlier agent.
func (l *ledger) retire(types []string) {
	for _, t := range types {
		if l.entries[t] == nil {
			e := &entry{known: l.seen}
			e.api, e.present = l.find(t)
			l.entries[t] = e
		}
	}
}
