package collector

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
)

// Target describes connections to watch, for the fault family sockfail. Zero fields match any; an
// address, a port or a namespace is required.
type Target struct {
	Name        string
	Address     netip.Addr
	Port        uint16
	NetNS       uint32 // inode of the namespace that connections come from
	TargetNetNS uint32 // inode of the one they go to; 0: found by its address

	// SlowAfter is the time after which an incomplete answer is a failure; 0: never. It applies to
	// a connection that received bytes and that its opener closes at that time or later, before the
	// peer does. It counts from connect(): if the opener's own timeout starts earlier, set this a
	// little lower than that timeout. In whole milliseconds, rounded up.
	SlowAfter time.Duration
	// SlowOpeners are the names (as in /proc/PID/comm, separated by commas) of the processes whose
	// slow connections are failures (see SlowAfter); empty: all processes. Other processes may
	// legitimately keep a connection to the same place open for hours, and close it when idle.
	SlowOpeners string
}

const (
	// maxTargets is ten times a hundred pods with three probes each, and more; the kernel's maps
	// have room for as many plus the canary.
	maxTargets = 9_999
	// maxTargetName bounds a name for display.
	maxTargetName = 200
	// maxSlowAfter is far below what the BPF side has room for.
	maxSlowAfter = 24 * time.Hour
)

// errNoTarget: a target without any field would match every connection.
var errNoTarget = errors.New("a target needs an address, a port or a netns")

// check returns the target in its canonical form.
func (t Target) check() (Target, error) {
	if t.Address.Zone() != "" {
		return t, fmt.Errorf("address %s: zones are not supported", t.Address)
	}
	t.Address = t.Address.Unmap()
	if t.Address.IsValid() && t.Address.IsUnspecified() {
		return t, fmt.Errorf("address %s: to match any address, omit it", t.Address)
	}
	if !t.Address.IsValid() && t.Port == 0 && t.NetNS == 0 {
		return t, errNoTarget
	}
	if t.NetNS == bpf.SockTargetAnySide {
		return t, fmt.Errorf("netns %d: no such inode", t.NetNS)
	}
	if t.SlowAfter < 0 || t.SlowAfter > maxSlowAfter {
		return t, fmt.Errorf("slow after %s: must be 0 to %s", t.SlowAfter, maxSlowAfter)
	}
	if t.SlowAfter == 0 && t.SlowOpeners != "" {
		return t, errors.New("slow openers need a duration (slowAfter)")
	}
	for _, name := range t.slowOpeners() {
		if name == "" || len(name) > bpf.MaxSockOpenerName || strings.ContainsRune(name, 0) {
			return t, fmt.Errorf("opener %q: want a process name of 1 to %d bytes", name, bpf.MaxSockOpenerName)
		}
	}
	t.Name = display.Safe(t.Name, maxTargetName)
	return t, nil
}

func (t *Target) slowOpeners() []string {
	if t.SlowOpeners == "" {
		return nil
	}
	return strings.Split(t.SlowOpeners, ",")
}

func (t *Target) key() bpf.SockTargetKey { return bpf.NewSockTargetKey(t.NetNS, t.Address, t.Port) }

// Targets is the set of targets from all sources. It is safe for concurrent use. Changes reach the
// kernel with the collector's next check, within pollTargets, or pollIdle if there were none.
type Targets struct {
	mu       sync.Mutex
	sources  map[string][]Target
	total    int
	byID     map[uint32]Target // targets in force
	byKey    map[bpf.SockTargetKey]uint32
	changed  bool
	outcomes func(id uint32) (bpf.SockOutcome, bool, error) // nil: nothing is watched
	awaited  map[string]bool                                // sources that have not set a list yet
}

// earlierRun is the source of the targets that were watched before the agent started, until each
// awaited source has set its first list.
const earlierRun = "earlier run"

// newTargets returns a set that waits for the first list of each of these sources.
func newTargets(awaited ...string) *Targets {
	// changed, because an earlier run's targets may still be in the kernel.
	t := &Targets{sources: map[string][]Target{}, changed: true, awaited: map[string]bool{}}
	for _, source := range awaited {
		t.awaited[source] = true
	}
	return t
}

// Set replaces a source's targets; an empty list removes it. On an error nothing has changed.
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
		return fmt.Errorf("too many targets in all: %d, at most %d", total, maxTargets)
	}
	if slices.Equal(t.sources[source], checked) {
		t.heard(source)
		return nil
	}
	if err := t.checkOpeners(source, checked); err != nil {
		return err
	}
	t.heard(source)
	t.total, t.changed = total, true
	if t.sources[source] = checked; len(checked) == 0 {
		delete(t.sources, source)
	}
	return nil
}

// heard records that a source has set a list.
func (t *Targets) heard(source string) {
	delete(t.awaited, source)
	if _, kept := t.sources[earlierRun]; kept && len(t.awaited) == 0 {
		delete(t.sources, earlierRun)
		t.changed = true
	}
}

// resume takes over the targets that an earlier run watched.
func (t *Targets) resume(watched bpf.SockTargets) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey, t.byID = make(map[bpf.SockTargetKey]uint32, len(watched.Keys)), make(map[uint32]Target, len(watched.Keys))
	earlier := make([]Target, 0, len(watched.Keys))
	for k, of := range watched.Keys {
		if of.ID == bpf.SockTargetCanary {
			continue // of a process that has ended
		}
		target := targetOf(k, of, watched)
		t.byKey[k], t.byID[of.ID] = of.ID, target
		earlier = append(earlier, target)
	}
	if len(earlier) > 0 && len(t.awaited) > 0 {
		t.sources[earlierRun], t.changed = earlier, true
	}
}

// waiting reports whether targets of an earlier run are kept because a first list is missing.
func (t *Targets) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sources[earlierRun] != nil
}

// targetOf returns the target of a key in the kernel.
func targetOf(k bpf.SockTargetKey, of bpf.SockTarget, all bpf.SockTargets) Target {
	label := all.Labels[of.ID]
	t := Target{
		Name: unix.ByteSliceToString(label.Name[:]), Port: k.Port, NetNS: k.NetNS, TargetNetNS: label.TargetNetNS,
		SlowAfter: time.Duration(of.SlowMS) * time.Millisecond,
	}
	if k.Addr != [16]byte{} {
		t.Address = netip.AddrFrom16(k.Addr).Unmap()
	}
	var openers []string
	for i, name := range all.Openers {
		if of.Openers>>i&1 != 0 {
			openers = append(openers, name)
		}
	}
	t.SlowOpeners = strings.Join(openers, ",")
	return t
}

// labelOf returns the label that is stored for a target besides its key.
func labelOf(t *Target) bpf.SockTargetLabel {
	l := bpf.SockTargetLabel{TargetNetNS: t.TargetNetNS}
	copy(l.Name[:len(l.Name)-1], t.Name)
	return l
}

// checkOpeners returns an error if these targets exceed the room for names of openers.
func (t *Targets) checkOpeners(source string, targets []Target) error {
	lists := maps.Clone(t.sources)
	lists[source] = targets
	delete(lists, earlierRun)
	names := map[string]bool{}
	for _, list := range lists {
		for i := range list {
			for _, name := range list[i].slowOpeners() {
				names[name] = true
			}
		}
	}
	if len(names) > bpf.MaxSockOpeners {
		return fmt.Errorf("too many names of openers in all: %d, at most %d", len(names), bpf.MaxSockOpeners)
	}
	return nil
}

// reconcile passes the set to the kernel if it has changed.
func (t *Targets) reconcile(watch func(bpf.SockTargets) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed {
		return nil
	}
	watched, byID := number(t.sources, t.byKey)
	if len(watched.Keys) > maxTargets || len(watched.Openers) > bpf.MaxSockOpeners {
		// The targets set now have priority.
		delete(t.sources, earlierRun)
		watched, byID = number(t.sources, t.byKey)
	}
	if err := watch(watched); err != nil {
		return err // retried at the next check
	}
	t.byKey = make(map[bpf.SockTargetKey]uint32, len(watched.Keys))
	for k, target := range watched.Keys {
		t.byKey[k] = target.ID
	}
	t.byID, t.changed = byID, false
	return nil
}

// number gives each distinct target its ID: the ID that it has, or an unused one. If targets differ
// only in name or destination namespace, number uses the target of the source whose name sorts
// first; an earlier run comes last. If they differ in SlowAfter, it uses the shortest, for the
// openers of all.
func number(sources map[string][]Target, ids map[bpf.SockTargetKey]uint32) (watched bpf.SockTargets, byID map[uint32]Target) {
	watched.Keys, byID = map[bpf.SockTargetKey]bpf.SockTarget{}, map[uint32]Target{}
	watched.Labels = map[uint32]bpf.SockTargetLabel{}
	names := slices.Sorted(maps.Keys(sources))
	if i := slices.Index(names, earlierRun); i >= 0 {
		names = append(slices.Delete(names, i, i+1), earlierRun)
	}
	taken := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		taken[id] = true
	}
	anybody := map[uint32]bool{} // targets whose slow answers count for every opener
	for _, name := range names {
		for _, target := range sources[name] {
			k := target.key()
			w, dup := watched.Keys[k]
			if !dup {
				if w.ID = ids[k]; w.ID == 0 {
					for w.ID = k.ID(); taken[w.ID] || w.ID == 0 || w.ID == bpf.SockTargetCanary; {
						w.ID++
					}
				}
				taken[w.ID], byID[w.ID], watched.Labels[w.ID] = true, target, labelOf(&target)
			}
			if target.SlowAfter > 0 {
				ms := uint32((target.SlowAfter + time.Millisecond - 1) / time.Millisecond)
				if w.SlowMS == 0 || ms < w.SlowMS {
					w.SlowMS = ms
				}
				w.Openers |= openerBits(&watched.Openers, target.slowOpeners())
				anybody[w.ID] = anybody[w.ID] || target.SlowOpeners == ""
			}
			watched.Keys[k] = w
		}
	}
	for k, w := range watched.Keys {
		if anybody[w.ID] {
			w.Openers = 0
			watched.Keys[k] = w
		}
	}
	return watched, byID
}

// openerBits returns a set of names as bits by their index in all. It appends missing names to all.
func openerBits(all *[]string, names []string) (bits uint32) {
	for _, name := range names {
		i := slices.Index(*all, name)
		if i < 0 {
			i = len(*all)
			*all = append(*all, name)
		}
		bits |= 1 << i
	}
	return bits
}

// byRecord returns the target of a record, or false if the target has been removed since.
func (t *Targets) byRecord(id uint32) (Target, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	target, ok := t.byID[id]
	return target, ok
}

// list returns the targets in force.
func (t *Targets) list() []Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}

// len returns how many targets are watched, or will be.
func (t *Targets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total + len(t.sources[earlierRun])
}

// TargetOutcome counts the connections to a target that have ended.
type TargetOutcome struct {
	Target Target
	// Succeeded and Failed count connections since any source first watched the target. They
	// survive a restart of the agent if no time passes without one. A connection whose first SYN
	// was not answered and that succeeded later counts in both. If there are more than 8192
	// connections at a time, some are missed.
	Succeeded, Failed uint64
	// Started is when the latest connection began; zero: none. Took is the time until it failed or
	// the first side closed it. RTT is the smoothed round trip, zero if it was never established.
	Started   time.Time
	Took, RTT time.Duration
}

// count sets the function that reads outcomes from a running stem; nil: there is none.
func (t *Targets) count(read func(id uint32) (bpf.SockOutcome, bool, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = read
}

// errNotCounted: no program counts connections.
var errNotCounted = errors.New("can't detect connections to targets")

// outcomesOf returns the outcomes of one source's targets, in its order. Targets that are not in
// force yet have none. wall converts a time since boot into wall clock time.
func (t *Targets) outcomesOf(source string, wall func(time.Duration) time.Time) ([]TargetOutcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outcomes == nil {
		return nil, errNotCounted
	}
	targets := t.sources[source]
	out := make([]TargetOutcome, len(targets))
	for i, target := range targets {
		out[i].Target = target
		id, inForce := t.byKey[target.key()]
		if !inForce {
			continue
		}
		o, watched, err := t.outcomes(id)
		if err != nil {
			return nil, err
		}
		if !watched {
			continue
		}
		out[i].Succeeded, out[i].Failed = o.Succeeded, o.Failed
		if o.StartNS > 0 {
			out[i].Started = wall(time.Duration(o.StartNS))
		}
		out[i].Took = time.Duration(o.TookNS)
		out[i].RTT = time.Duration(o.RTTMicros) * time.Microsecond
	}
	return out, nil
}
