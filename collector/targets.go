package collector

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// Target is where connections are watched, for the fault family sockfail. Zero
// fields mean any; an address, a port or a namespace must be given.
type Target struct {
	Name        string
	Address     netip.Addr
	Port        uint16
	NetNS       uint32 // inode of the namespace that connections come from
	TargetNetNS uint32 // inode of the one they go to; 0: found by its address
}

const (
	// maxTargets is some hundred pods with three probes each, ten times over;
	// the kernel's map is made for as many.
	maxTargets = 10_000
	// maxTargetName bounds what is shown of a name.
	maxTargetName = 200
)

// errNoTarget: a target without any field would be every connection.
var errNoTarget = errors.New("a target needs an address, a port or a netns")

// check returns the target in its canonical form.
func (t Target) check() (Target, error) {
	if t.Address.Zone() != "" {
		return t, fmt.Errorf("address %s: zones are not supported", t.Address)
	}
	t.Address = t.Address.Unmap()
	if t.Address.IsValid() && t.Address.IsUnspecified() {
		return t, fmt.Errorf("address %s: leave it out to mean any", t.Address)
	}
	if !t.Address.IsValid() && t.Port == 0 && t.NetNS == 0 {
		return t, errNoTarget
	}
	if t.NetNS == bpf.SockTargetAnySide {
		return t, fmt.Errorf("netns %d: no such inode", t.NetNS)
	}
	t.Name = event.SafeText(t.Name, maxTargetName)
	return t, nil
}

func (t *Target) key() bpf.SockTargetKey { return bpf.NewSockTargetKey(t.NetNS, t.Address, t.Port) }

// Targets is the set of targets from all sources. It is safe for concurrent
// use; what changes in it reaches the kernel with the next look of the
// collector, within pollTargets.
type Targets struct {
	mu      sync.Mutex
	sources map[string][]Target
	total   int
	byID    map[uint32]Target
	changed bool
}

func newTargets() *Targets {
	// Changed: an earlier run's targets may be in the kernel still.
	return &Targets{sources: map[string][]Target{}, changed: true}
}

// Set replaces the targets of one source; an empty list removes it. With an
// error nothing has changed.
func (t *Targets) Set(source string, targets []Target) error {
	checked := make([]Target, len(targets))
	var errs []error
	for i, target := range targets {
		var err error
		if checked[i], err = target.check(); err != nil {
			errs = append(errs, fmt.Errorf("targets[%d]: %w", i, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	total := t.total - len(t.sources[source]) + len(checked)
	if total > maxTargets {
		return fmt.Errorf("%d targets in all are too many: at most %d", total, maxTargets)
	}
	if slices.Equal(t.sources[source], checked) {
		return nil
	}
	t.total, t.changed = total, true
	if t.sources[source] = checked; len(checked) == 0 {
		delete(t.sources, source)
	}
	return nil
}

// reconcile hands the set to the kernel when it has changed.
func (t *Targets) reconcile(watch func(map[bpf.SockTargetKey]uint32) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed {
		return nil
	}
	keys, byID := number(t.sources)
	if err := watch(keys); err != nil {
		return err // tried again at the next look
	}
	t.byID, t.changed = byID, false
	return nil
}

// number gives each distinct target its id. Of targets that differ only in name
// or namespace of the destination the first source by name counts.
func number(sources map[string][]Target) (keys map[bpf.SockTargetKey]uint32, byID map[uint32]Target) {
	keys, byID = map[bpf.SockTargetKey]uint32{}, map[uint32]Target{}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare)
	for _, name := range names {
		for _, target := range sources[name] {
			k := target.key()
			if _, dup := keys[k]; dup {
				continue
			}
			id := k.ID()
			for _, taken := byID[id]; taken || id == 0; _, taken = byID[id] {
				id++
			}
			keys[k], byID[id] = id, target
		}
	}
	return keys, byID
}

// byRecord returns the target that a record names. It is not found when it has
// been removed since.
func (t *Targets) byRecord(id uint32) (Target, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	target, ok := t.byID[id]
	return target, ok
}

// list calls fn with each target in force.
func (t *Targets) list(fn func(Target)) {
	t.mu.Lock()
	targets := make([]Target, 0, len(t.byID))
	for _, target := range t.byID {
		targets = append(targets, target)
	}
	t.mu.Unlock()
	for _, target := range targets {
		fn(target)
	}
}

// len returns how many targets there are.
func (t *Targets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
