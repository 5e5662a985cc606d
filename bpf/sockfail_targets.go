package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"path/filepath"
	"structs"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// SockTargetKey is struct target_key: what is watched. Zero fields match anything.
type SockTargetKey struct {
	_     structs.HostLayout
	Addr  [16]byte // IPv4 as ::ffff:a.b.c.d
	NetNS uint32
	Port  uint16
	Pad   uint16
}

// SockTargetAnySide is the NetNS of keys that match packets seen in any network namespace.
const SockTargetAnySide = ^uint32(0)

// SockTargetCanary is the ID of the agent's own target, the same in all runs.
const SockTargetCanary = ^uint32(0)

// SockTarget is struct target: the settings of a watched key.
type SockTarget struct {
	_ structs.HostLayout
	// ID is the target's ID in records.
	ID uint32
	// SlowMS is the time in milliseconds after which an incomplete answer is slow; 0: never.
	SlowMS uint32
	// Openers has bit i set if SlowMS applies to connections of processes with name i; 0: all.
	Openers uint32
	Pad     uint32
}

// Limits of the names of opener processes: their number, and the length of each.
const (
	MaxSockOpeners    = 8
	MaxSockOpenerName = 15
)

// SockConfig is struct config.
type SockConfig struct {
	_             structs.HostLayout
	Classes       uint32
	PacketClasses uint32
	Openers       [MaxSockOpeners][MaxSockOpenerName + 1]byte
	Ports         [1 << 16 / 64]uint64
}

// SockTargetLabel is struct target_label: data of a target that only the next agent needs.
type SockTargetLabel struct {
	_           structs.HostLayout
	TargetNetNS uint32
	Name        [204]byte // padded with NUL
}

// SockTargets is what [Loaded.WatchTargets] makes the programs watch.
type SockTargets struct {
	Keys   map[SockTargetKey]SockTarget
	Labels map[uint32]SockTargetLabel // by target ID
	// Openers are process names as in /proc/PID/comm, at most MaxSockOpeners.
	Openers []string
}

// NewSockTargetKey returns the key of a target. The invalid address and zeros match anything.
func NewSockTargetKey(netns uint32, addr netip.Addr, port uint16) SockTargetKey {
	k := SockTargetKey{NetNS: netns, Port: port}
	if addr.IsValid() {
		k.Addr = addr.As16() // IPv4 in its v4-mapped form
	}
	return k
}

// Class returns the bit of SockConfig.Classes that the key belongs to.
func (k SockTargetKey) Class() uint32 {
	i := 0
	if k.Port == 0 {
		i |= 1
	}
	if k.NetNS == 0 {
		i |= 2
	}
	if k.Addr == ([16]byte{}) {
		i |= 4
	}
	return 1 << i
}

// ID returns a number for the key that is the same after a restart, so that records of an earlier
// run of the agent still name their target. It is never 0; callers must handle collisions.
func (k SockTargetKey) ID() uint32 {
	h := fnv.New32a()
	b := append(make([]byte, 0, 24), k.Addr[:]...)
	b = binary.BigEndian.AppendUint32(b, k.NetNS)
	b = binary.BigEndian.AppendUint16(b, k.Port)
	h.Write(b)
	return max(h.Sum32(), 1)
}

// config returns the programs' configuration for the targets.
func (t *SockTargets) config() (*SockConfig, error) {
	c := &SockConfig{}
	if len(t.Openers) > MaxSockOpeners {
		return nil, fmt.Errorf("too many names of openers: %d, at most %d", len(t.Openers), MaxSockOpeners)
	}
	for i, name := range t.Openers {
		if name == "" || len(name) > MaxSockOpenerName {
			return nil, fmt.Errorf("opener %q: want a name of 1 to %d bytes", name, MaxSockOpenerName)
		}
		copy(c.Openers[i][:], name)
	}
	for k := range t.Keys {
		c.Classes |= k.Class()
		c.Ports[k.Port/64] |= 1 << (k.Port % 64)
		k.NetNS = SockTargetAnySide
		c.PacketClasses |= k.Class()
	}
	return c, nil
}

// joined returns a config that watches what either one watches. It uses c's openers.
func (c *SockConfig) joined(other *SockConfig) *SockConfig {
	j := *c
	j.Classes |= other.Classes
	j.PacketClasses |= other.PacketClasses
	for i, ports := range other.Ports {
		j.Ports[i] |= ports
	}
	return &j
}

// WatchTargets makes the programs watch exactly these targets. It attaches what is needed only
// while there are targets. Once it returns, every new connection is counted. Targets that were
// watched before with the same ID keep their outcomes.
func (l *Loaded) WatchTargets(want SockTargets) error {
	targets, config := l.maps[SockfailMapTargets], l.maps[SockfailMapConfig]
	next, err := want.config()
	if err != nil {
		return err
	}
	if len(want.Keys) > 0 {
		if err := l.attachForTargets(); err != nil {
			return err
		}
	}
	all := make(map[SockTargetKey]SockTarget, 2*len(want.Keys))
	ids := make(map[uint32]bool, len(want.Keys))
	for k, t := range want.Keys {
		all[k], ids[t.ID] = t, true
		k.NetNS = SockTargetAnySide
		all[k] = SockTarget{} // shared by targets of several namespaces; programs only look it up
	}
	before, err := l.sockConfig()
	if err != nil {
		return err
	}
	stale, moved, err := staleTargets(targets, all)
	if err != nil {
		return err
	}
	// A caller may rely on a key that it finds in targets (WatchedBy): by then the classes are in
	// use, packets are watched, and outcomes are counted.
	var errs []error
	now := &before
	setConfig := func(c *SockConfig) {
		if *c == *now {
			return
		}
		if err := config.Put(uint32(0), c); err != nil {
			errs = append(errs, fmt.Errorf("set watched classes: %w", err))
		}
		now = c
	}
	setConfig(next.joined(now))
	// Delete before adding: the maps have no room for both.
	for _, k := range stale {
		if err := targets.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("unwatch target: %w", err))
		}
	}
	errs = append(errs, l.countOutcomes(ids, moved), l.label(want.Labels))
	for _, packets := range []bool{true, false} {
		for k, v := range all {
			if (k.NetNS == SockTargetAnySide) != packets {
				continue
			}
			if err := targets.Put(&k, &v); err != nil {
				errs = append(errs, fmt.Errorf("watch target: %w", err))
			}
		}
	}
	setConfig(next)
	if len(want.Keys) == 0 {
		for _, h := range l.stem.hooks {
			if h.onDemand {
				errs = append(errs, l.Detach(h.name))
			}
		}
	}
	return errors.Join(errs...)
}

// WatchedTargets returns the targets last passed to [Loaded.WatchTargets], even by an earlier run.
func (l *Loaded) WatchedTargets() (SockTargets, error) {
	config, err := l.sockConfig()
	if err != nil {
		return SockTargets{}, err
	}
	var all SockTargets
	if all.Keys, err = contents[SockTargetKey, SockTarget](l.maps[SockfailMapTargets]); err != nil {
		return SockTargets{}, fmt.Errorf("list watched targets: %w", err)
	}
	maps.DeleteFunc(all.Keys, func(k SockTargetKey, _ SockTarget) bool { return k.NetNS == SockTargetAnySide })
	if all.Labels, err = contents[uint32, SockTargetLabel](l.maps[SockfailMapLabels]); err != nil {
		return SockTargets{}, fmt.Errorf("list labels of targets: %w", err)
	}
	for _, name := range config.Openers {
		if name[0] == 0 {
			break
		}
		all.Openers = append(all.Openers, unix.ByteSliceToString(name[:]))
	}
	return all, nil
}

// label stores exactly these labels and deletes others.
func (l *Loaded) label(labels map[uint32]SockTargetLabel) error {
	keep := func(_ uint32, has, want SockTargetLabel) bool { return has == want }
	if err := replace(l.maps[SockfailMapLabels], labels, keep); err != nil {
		return fmt.Errorf("label targets: %w", err)
	}
	return nil
}

// sockConfig returns the programs' configuration, which an earlier run may have written.
func (l *Loaded) sockConfig() (SockConfig, error) {
	var c SockConfig
	if err := l.maps[SockfailMapConfig].Lookup(uint32(0), &c); err != nil {
		return c, fmt.Errorf("read watched classes: %w", err)
	}
	return c, nil
}

// attachForTargets attaches the hooks needed while there are targets. If optional hooks fail, only
// evidence is missing; the reports list them.
func (l *Loaded) attachForTargets() error {
	for _, h := range l.stem.hooks {
		if !h.onDemand || h.name == hookStateToo { // CheckFollowers decides on that one
			continue
		}
		if err := l.Attach(h.name); err != nil && !h.optional {
			return err
		}
	}
	return l.CheckFollowers()
}

// staleTargets returns the keys in m that are not wanted (stale), and the IDs of keys that are not
// wanted or are wanted with another ID (moved). Keys for packets have no ID of their own. It deletes
// from want the keys that m already has with the same value.
func staleTargets(m *ebpf.Map, want map[SockTargetKey]SockTarget) (stale []SockTargetKey, moved map[uint32]bool, err error) {
	has, err := contents[SockTargetKey, SockTarget](m)
	if err != nil {
		return nil, nil, fmt.Errorf("list watched targets: %w", err)
	}
	moved = map[uint32]bool{}
	for k, v := range has {
		w, ok := want[k]
		if !ok {
			stale = append(stale, k)
		}
		if ok && w == v {
			delete(want, k)
		}
		if (!ok || w.ID != v.ID) && k.NetNS != SockTargetAnySide {
			moved[v.ID] = true // and may be reused for another target
		}
	}
	return stale, moved, nil
}

// WatchedBy reports whether the programs pinned under pinRoot watch connections from the given
// namespace to addr, also by a wildcard. The programs belong to a running agent, or to one that
// will read their records when it starts again. It returns false without an error if nothing is
// pinned there or no target matches.
func WatchedBy(pinRoot string, netns uint32, addr netip.AddrPort) (bool, error) {
	pins, err := filepath.Glob(filepath.Join(pinRoot, StemSockFail, statePrefix+"*", "map_"+SockfailMapTargets))
	if err != nil {
		return false, fmt.Errorf("look for targets: %w", err)
	}
	for _, pin := range pins {
		found, err := watchedIn(pin, netns, addr)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func watchedIn(pin string, netns uint32, addr netip.AddrPort) (bool, error) {
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return false, fmt.Errorf("look for targets: %w", err)
	}
	defer m.Close()
	for class := range 8 {
		k := NewSockTargetKey(netns, addr.Addr(), addr.Port())
		if class&1 != 0 {
			k.Port = 0
		}
		if class&2 != 0 {
			k.NetNS = 0
		}
		if class&4 != 0 {
			k.Addr = [16]byte{}
		}
		var v SockTarget
		switch err := m.Lookup(&k, &v); {
		case err == nil:
			return true, nil
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return false, fmt.Errorf("look for targets: %w", err)
		}
	}
	return false, nil
}

// SockOutcome is struct target_outcome: counts of a target's ended connections, and the latest.
type SockOutcome struct {
	_         structs.HostLayout
	Succeeded uint64
	Failed    uint64
	StartNS   uint64 // when the latest one called connect(), since boot
	TookNS    uint64
	RTTMicros uint32 // smoothed; 0: never established
	Pad       uint32
}

// SockOutcomes reads outcomes by target ID. Concurrent use is safe, also when its stem is closed.
type SockOutcomes struct {
	m *ebpf.Map
}

// SockOutcomes returns the outcomes of the watched targets. The caller must close it.
func (l *Loaded) SockOutcomes() (*SockOutcomes, error) {
	// A descriptor of its own: the stem's may be closed while this one is read.
	m, err := l.maps[SockfailMapOutcomes].Clone()
	if err != nil {
		return nil, fmt.Errorf("outcomes of targets: %w", err)
	}
	return &SockOutcomes{m: m}, nil
}

// Of returns the outcome since the target is watched, and false if it is not watched.
func (o *SockOutcomes) Of(id uint32) (SockOutcome, bool, error) {
	var out SockOutcome
	err := o.m.Lookup(id, &out)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return SockOutcome{}, false, nil
	}
	if err != nil {
		return SockOutcome{}, false, fmt.Errorf("outcome of target %d: %w", id, err)
	}
	return out, true, nil
}

// Close closes the descriptor. It must be the last call.
func (o *SockOutcomes) Close() error { return o.m.Close() }

// countOutcomes counts outcomes for exactly these targets. Targets that are new, or whose ID
// belonged to another target (moved), start at 0.
func (l *Loaded) countOutcomes(ids, moved map[uint32]bool) error {
	zero := make(map[uint32]SockOutcome, len(ids))
	for id := range ids {
		zero[id] = SockOutcome{}
	}
	keep := func(id uint32, _, _ SockOutcome) bool { return !moved[id] }
	if err := replace(l.maps[SockfailMapOutcomes], zero, keep); err != nil {
		return fmt.Errorf("count outcomes: %w", err)
	}
	return nil
}
