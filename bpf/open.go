package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Loaded is a stem in the kernel: its maps, its programs and the links that
// feed it. It is not safe for concurrent use, except where a method says so.
type Loaded struct {
	Stem string
	// Settle is called before records are committed to the kernel. It must make everything that was
	// derived from them durable. May be nil.
	Settle func()

	maps  map[string]*ebpf.Map
	links map[string]link.Link // by hook

	programsMu sync.Mutex // guards programs, because Skips may be called while the stem runs
	programs   map[string]*ebpf.Program

	reportsMu sync.Mutex // Reports may be called while the stem runs
	reports   []VariantReport

	stem   Stem
	spec   *ebpf.CollectionSpec // set during Open only; on-demand hooks parse it again later
	kernel *Kernel
	dir    string // pin folder; empty: not pinned
	shared string // pin folder of maps shared with other builds; equals dir if none are shared
	// siblings are the pin folders of builds that share these maps.
	siblings []string
	// follows: other builds that share no maps with this one may be attached.
	follows bool

	ring        *Ring
	sockOps     sockOpsPrograms
	predecessor *predecessor // until it is drained
	unread      error        // see Losses
}

// Open loads a stem and attaches to each hook the best variant this kernel supports. With pins it
// first adopts the links that an earlier run of the same build left attached, or takes over from
// another build, so that no fault in between is missed or recorded twice. pins may be nil.
//
// Open fails if no variant of a required hook works; the error contains the reason for each
// variant. Even then [Loaded.Reports] is valid, and Close must be called.
func Open(stem Stem, kernel *Kernel, pins *PinRoot) (*Loaded, error) {
	l := &Loaded{
		Stem: stem.Name, stem: stem, kernel: kernel,
		maps:     map[string]*ebpf.Map{},
		programs: map[string]*ebpf.Program{},
		links:    map[string]link.Link{},
		sockOps:  sockOpsPrograms{others: map[ebpf.ProgramID]bool{}},
	}
	if err := l.open(pins); err != nil {
		return l, fmt.Errorf("attach %s: %w", stem.Name, err)
	}
	return l, nil
}

func (l *Loaded) open(pins *PinRoot) error {
	spec, err := l.collection()
	if err != nil {
		return err
	}
	// It takes hundreds of KiB, and only on-demand hooks need it again.
	l.spec = spec
	defer func() { l.spec = nil }()
	var others []string
	if pins != nil {
		if others, err = l.openPins(pins); err != nil {
			return err
		}
	}
	if err := l.loadMaps(); err != nil {
		return err
	}
	for _, name := range append([]string{canaryProgram}, l.stem.unattached...) {
		if err := l.loadProgram(name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	if l.ring, err = OpenRing(l.maps[mapEvents]); err != nil {
		return err
	}
	if err := l.attachHooks(); err != nil {
		return err
	}
	if pins == nil {
		return nil
	}
	if err := l.forgetSkips(); err != nil {
		return err
	}
	return l.takeOver(pins, others)
}

// collection returns the stem's object, adapted to this kernel.
func (l *Loaded) collection() (*ebpf.CollectionSpec, error) {
	if l.spec != nil {
		return l.spec, nil
	}
	spec, err := l.stem.spec()
	if err != nil {
		return nil, fmt.Errorf("parse object: %w", err)
	}
	if l.stem.configure != nil {
		if err := l.stem.configure(spec, l.kernel); err != nil {
			return nil, err
		}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("possible CPUs: %w", err)
	}
	for _, m := range spec.Maps {
		growLRU(m, cpus, l.kernel)
	}
	return spec, nil
}

// Names that every stem's object has (headers/ring.bpf.h).
const (
	mapEvents = "events"
	mapLost   = "lost"
)

// openPins creates or finds this build's folder and returns the folders of other builds.
func (l *Loaded) openPins(pins *PinRoot) (others []string, err error) {
	layout, err := l.stem.layout(l.spec)
	if err != nil {
		return nil, err
	}
	id := l.stem.id(layout)
	versions, err := pins.versions(l.Stem)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		if v == id {
			continue
		}
		others = append(others, pins.dir(l.Stem, v))
		if of, _, _ := strings.Cut(v, "-"); l.stem.shares && of == layout {
			l.siblings = append(l.siblings, pins.dir(l.Stem, v))
		}
	}
	l.dir = pins.dir(l.Stem, id)
	l.shared = l.dir
	if l.stem.shares {
		l.shared = pins.dir(l.Stem, statePrefix+layout)
	}
	// If a run was killed while it unpinned, its programs may write to maps whose pins are gone:
	// share nothing with them. Nor with a run that another build has taken over since: its ring has
	// gaps, and is read as a predecessor's.
	known, err := pins.list(l.Stem, id)
	if err != nil {
		return nil, err
	}
	ended := slices.ContainsFunc(others, func(dir string) bool {
		cut := l.cutOf(dir)
		return !slices.Contains(l.siblings, dir) && cut != notYet && cut > l.cutOf(l.dir)
	})
	if state, ring := l.missesMaps(); state || (ring || ended) && len(known) > 0 {
		left, err := pins.setAside(l.Stem, "", id)
		if err != nil {
			return nil, err
		}
		if left != "" {
			others = append(others, left)
		}
		if l.shared != l.dir {
			if _, err := pins.setAside(l.Stem, statePrefix, layout); err != nil {
				return nil, err
			}
		}
		l.siblings = nil
	}
	l.follows = len(others) > 0 && len(l.siblings) == 0
	for _, dir := range []string{l.dir, l.shared} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("pin: %w", err)
		}
	}
	return others, nil
}

// missesMaps reports whether a map is not pinned: state for shared maps, ring for the ring's.
func (l *Loaded) missesMaps() (state, ring bool) {
	for name := range l.spec.Maps {
		if _, err := os.Stat(l.mapPin(name)); err == nil || isConstants(name) {
			continue
		}
		state, ring = state || !isOfRing(name), ring || isOfRing(name)
	}
	return state, ring
}

// mapPin returns the path of a map's pin.
func (l *Loaded) mapPin(name string) string {
	if isOfRing(name) {
		return mapPin(l.dir, name)
	}
	return mapPin(l.shared, name)
}

// loadMaps opens the pinned maps, or creates and pins new ones.
func (l *Loaded) loadMaps() error {
	names := []string{mapLost} // first: no ring may exist without the build's cut
	for name := range l.spec.Maps {
		if name != mapLost && !isConstants(name) { // constants belong to the programs that use them
			names = append(names, name)
		}
	}
	for _, name := range names {
		m, err := l.loadMap(name, l.spec.Maps[name])
		if err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
		l.maps[name] = m
	}
	return nil
}

func (l *Loaded) loadMap(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	pin := l.mapPin(name)
	if l.dir != "" {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err == nil {
			if err := spec.Compatible(m); err == nil {
				return m, nil
			}
			// An incompatible pin under this build's id is not from this build.
			if err := errors.Join(m.Close(), os.Remove(pin)); err != nil {
				return nil, err
			}
		}
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	if name == mapLost && l.follows {
		if err := noteLost(m, cutAt, notYet); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	if l.dir != "" {
		if err := m.Pin(pin); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

func isConstants(mapName string) bool { return mapName != "" && mapName[0] == '.' }

// isOfRing reports whether each build has its own copy of this map, because the rings of builds are
// read separately.
func isOfRing(mapName string) bool { return mapName == mapEvents || mapName == mapLost }

// replace makes a map contain exactly the wanted entries. It leaves those that keep returns true for.
func replace[V any](m *ebpf.Map, want map[uint32]V, keep func(id uint32, has, want V) bool) error {
	has, err := contents[uint32, V](m)
	if err != nil {
		return err
	}
	var errs []error
	for id := range has {
		if _, ok := want[id]; ok {
			continue
		}
		if err := m.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	for id, v := range want {
		if old, ok := has[id]; !ok || !keep(id, old, v) {
			errs = append(errs, m.Put(id, &v))
		}
	}
	return errors.Join(errs...)
}

// contents returns all entries of a map. With an error, it returns the entries that it could read.
func contents[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		all[key] = value
	}
	return all, it.Err()
}

// loadProgram loads one program of the object with the stem's maps.
func (l *Loaded) loadProgram(name string) error {
	if l.programs[name] != nil {
		return nil
	}
	object, err := l.collection()
	if err != nil {
		return err
	}
	spec := object.Copy()
	maps.DeleteFunc(spec.Programs, func(p string, _ *ebpf.ProgramSpec) bool { return p != name })
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps.Clone(l.maps), Cache: l.kernel.cache()})
	if err != nil {
		return err
	}
	defer coll.Close()
	l.keepProgram(name, coll.DetachProgram(name))
	return nil
}

func (l *Loaded) keepProgram(name string, p *ebpf.Program) {
	l.programsMu.Lock()
	defer l.programsMu.Unlock()
	l.programs[name] = p
}

// Reports returns the outcome of each variant, best first. It is safe for concurrent use.
func (l *Loaded) Reports() []VariantReport {
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	return slices.Clone(l.reports)
}

// Ring returns the stem's ring buffer.
func (l *Loaded) Ring() *Ring { return l.ring }

// Close closes all descriptors of this process. What is pinned stays attached. It may be called
// more than once, and after an Open that failed.
func (l *Loaded) Close() error {
	var errs []error
	if l.ring != nil {
		errs = append(errs, l.ring.Close())
		l.ring = nil
	}
	if l.predecessor != nil {
		errs = append(errs, l.predecessor.close())
		l.predecessor = nil
	}
	for name, lk := range l.links {
		errs = append(errs, lk.Close())
		delete(l.links, name)
	}
	l.programsMu.Lock()
	defer l.programsMu.Unlock()
	for name, p := range l.programs {
		errs = append(errs, p.Close())
		delete(l.programs, name)
	}
	for name, m := range l.maps {
		errs = append(errs, m.Close())
		delete(l.maps, name)
	}
	return errors.Join(errs...)
}

func bootNow() uint64 {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists on every kernel that has BTF.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(time.Duration(ts.Nano()))
}

// lruBatch is how many free elements a CPU reserves at once (LOCAL_FREE_TARGET of
// kernel/bpf/bpf_lru_list.c). No other CPU can use those.
const lruBatch = 128

// growLRU enlarges an LRU map so that it always holds the entries that its object declares. When
// other CPUs have reserved the last free elements, the kernel evicts live entries without counting
// them: with 64 CPUs a map of 8192 may lose entries while it is almost empty. This grows the maps of
// sockfail from 2.4 MiB to 17 MiB, two thirds of it for groups. Kernels since d4adf1c9ee77 (v6.16)
// reserve smaller batches, half of the map at most.
func growLRU(spec *ebpf.MapSpec, cpus int, k *Kernel) {
	if spec.Type != ebpf.LRUHash {
		return
	}
	more := lruBatch * uint32(cpus)
	if k.HasField("bpf_lru", "target_free") {
		more = min(more, spec.MaxEntries)
	}
	spec.MaxEntries += more
}
