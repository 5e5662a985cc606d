package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attachHooks attaches every hook that is not on demand. It prefers pinned links of an earlier run.
func (l *Loaded) attachHooks() error {
	pinned := map[string]map[string]string{}
	if l.dir != "" {
		var err error
		if pinned, err = pinnedLinks(l.dir); err != nil {
			return err
		}
	}
	for _, programs := range pinned {
		for program, path := range programs {
			if l.spec.Programs[program] == nil {
				_ = os.Remove(path) // pinned by a version whose hook had a "-" in its name
			}
		}
	}
	demanded := false
	if l.stem.demands != nil {
		var err error
		if demanded, err = l.stem.demands(l); err != nil {
			return err
		}
	}
	var errs []error
	for _, h := range l.stem.hooks {
		switch {
		case l.adopt(h, pinned[h.name]):
		case h.onDemand && h.optional && !demanded:
			l.report(h, h.variants[0], OnDemand, nil, false)
		default:
			err := l.attachHook(h)
			switch {
			case err != nil && !h.optional && !(h.ofFeature && errors.Is(err, errAbsent)):
				errs = append(errs, err)
			case err == nil && h.onDemand && !demanded: // it works; attached only once needed
				errs = append(errs, l.Detach(h.name))
			}
		}
	}
	return errors.Join(errs...)
}

// adopt takes over the pinned link of a hook, if there is one, and reports whether it did. If a
// better program works by now, it replaces the pinned one.
func (l *Loaded) adopt(h hook, pinned map[string]string) bool {
	for i, v := range h.variants {
		path, ok := pinned[v.program]
		if !ok {
			continue
		}
		if v.mayDie {
			_ = os.Remove(path) // the last reference: this detaches
			continue
		}
		lk, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			continue
		}
		prog, err := l.programOf(lk, v.program)
		if err == nil {
			if err = l.checkAdopted(lk, prog, v.program); err != nil {
				err = errors.Join(err, prog.Close())
			}
		}
		if err != nil {
			// Otherwise the old program would run beside its replacement.
			_ = errors.Join(lk.Unpin(), lk.Close())
			continue
		}
		for _, other := range h.variants[i+1:] {
			if path, ok := pinned[other.program]; ok {
				_ = os.Remove(path) // left by a run that was killed at this point
			}
		}
		if l.attachBetter(h, i) {
			_ = errors.Join(lk.Unpin(), lk.Close(), prog.Close())
			l.report(h, v, Unused, nil, false)
		} else {
			l.links[h.name] = lk
			l.keepProgram(v.program, prog)
			l.report(h, v, Adopted, nil, true)
		}
		for _, other := range h.variants[i+1:] {
			l.report(h, other, Unused, nil, false)
		}
		return true
	}
	return false
}

// attachBetter attaches a better variant of a hook while the adopted variant is still attached, so
// that no fault is missed. It does so only for stems in which the program that runs first handles
// the fault for both. In other stems each fault would be recorded twice.
func (l *Loaded) attachBetter(h hook, than int) bool {
	better := h
	better.variants = h.variants[:than]
	if l.stem.shares {
		return than > 0 && l.attachHook(better) == nil
	}
	for _, v := range better.variants {
		l.report(h, v, Absent, errors.New("an earlier run could not attach it"), false)
	}
	return false
}

// checkAdopted returns an error if a pinned link can't be used: its program uses other maps than
// this process (a run was killed while it unpinned), or it is attached to some cgroups only.
func (l *Loaded) checkAdopted(lk link.Link, prog *ebpf.Program, name string) error {
	info, err := lk.Info()
	if err != nil {
		return fmt.Errorf("link info: %w", err)
	}
	if of := info.Cgroup(); of != nil && of.CgroupId != cgroupRootID {
		return fmt.Errorf("%s is attached to the control group %d, not to the root", name, of.CgroupId)
	}
	its, err := prog.Info()
	if err != nil {
		return fmt.Errorf("program %s: %w", name, err)
	}
	used, ok := its.MapIDs()
	if !ok {
		return fmt.Errorf("program %s: the kernel does not report which maps it uses", name)
	}
	spec := l.spec.Programs[name]
	for i := range spec.Instructions {
		ins := &spec.Instructions[i]
		m := l.maps[ins.Reference()]
		if !ins.IsLoadFromMap() || m == nil {
			continue // a constant belongs to the program
		}
		info, err := m.Info()
		if err != nil {
			return fmt.Errorf("map %s: %w", ins.Reference(), err)
		}
		if id, ok := info.ID(); !ok || !slices.Contains(used, id) {
			return fmt.Errorf("program %s uses a different map %s than this process", name, ins.Reference())
		}
	}
	return nil
}

// programOf returns the program of a pinned link. It opens the program's own pin, because opening a
// program by its ID takes CAP_SYS_ADMIN.
func (l *Loaded) programOf(lk link.Link, name string) (*ebpf.Program, error) {
	info, err := lk.Info()
	if err != nil {
		return nil, fmt.Errorf("link info: %w", err)
	}
	if p, err := ebpf.LoadPinnedProgram(programPin(l.dir, name), nil); err == nil {
		if of, err := p.Info(); err == nil {
			if id, ok := of.ID(); ok && id == info.Program {
				return p, nil
			}
		}
		_ = p.Close()
	}
	return ebpf.NewProgramFromID(info.Program)
}

// pin pins a hook's link and program for the next agent, and reports whether that worked.
func (l *Loaded) pin(h hook, v variant) bool {
	if l.dir == "" {
		return false
	}
	path, program := programPin(l.dir, v.program), l.programs[v.program]
	// An existing pin is this program's (for another hook, or from before a Detach), or is from an
	// earlier run whose link could not be adopted.
	if err := program.Unpin(); err != nil {
		return false
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err := program.Pin(path); err != nil {
		return false
	}
	// perf-event links (kprobes) can be pinned from 5.15 on only; the report says when one is not.
	// Pin moves the pin of an inherited link.
	return l.links[h.name].Pin(linkPin(l.dir, h.name, v.program)) == nil
}

// attachHook tries the variants in order and stops at the first that works.
func (l *Loaded) attachHook(h hook) error {
	var errs []error
	done := false
	for _, v := range h.variants {
		if done {
			l.report(h, v, Unused, nil, false)
			continue
		}
		lk, err := l.attachVariant(h, v)
		if err != nil {
			// The canary was loaded before any hook was tried.
			state := classify(err, l.programs[canaryProgram] != nil)
			l.report(h, v, state, err, false)
			errs = append(errs, fmt.Errorf("%s: %s: %w", v.program, state, err))
			continue
		}
		done = true
		l.links[h.name] = lk
		l.report(h, v, Attached, nil, l.pin(h, v))
	}
	if !done {
		return fmt.Errorf("hook %s: no variant works: %w", h.name, errors.Join(errs...))
	}
	return nil
}

func (l *Loaded) attachVariant(h hook, v variant) (link.Link, error) {
	if v.usable != nil {
		if err := v.usable(l.kernel); err != nil {
			return nil, fmt.Errorf("%w: %w", errAbsent, err)
		}
	}
	if err := l.loadProgram(v.program); err != nil {
		return nil, err
	}
	if lk := l.inherit(h, v); lk != nil {
		return lk, nil
	}
	return v.attach(l.programs[v.program])
}

// inherit replaces another build's program with this build's in one step, which cgroup links
// support. If both were attached, the second would mistake the first one's note of a connect() for
// that of an earlier connect(). It returns nil if there is no such link.
func (l *Loaded) inherit(h hook, v variant) link.Link {
	for _, dir := range l.siblings {
		lk, err := link.LoadPinnedLink(linkPin(dir, h.name, v.program), nil)
		if err != nil {
			continue
		}
		if info, err := lk.Info(); err == nil {
			of := info.Cgroup()
			if of != nil && of.CgroupId == cgroupRootID && lk.Update(l.programs[v.program]) == nil {
				return lk
			}
		}
		_ = lk.Close()
	}
	return nil
}

func (l *Loaded) report(h hook, v variant, s State, err error, pinned bool) {
	r := VariantReport{Stem: l.Stem, Hook: h.name, Program: v.program, Optional: h.optional || h.ofFeature && s == Absent, State: s, Pinned: pinned}
	if err != nil {
		r.Reason = reason(err)
	}
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	l.reports = append(l.reports, r)
}

// AttachAll attaches every on-demand hook, to find out what is possible: see the reports.
func (l *Loaded) AttachAll() {
	for _, h := range l.stem.hooks {
		if h.onDemand {
			_ = l.Attach(h.name)
		}
	}
}

// Attach attaches an on-demand hook, or one whose kernel module may have been loaded since. It does
// nothing if the hook is attached. It fails at once if an earlier attempt has shown that the
// on-demand hook is impossible here, because an attempt takes tens of milliseconds.
func (l *Loaded) Attach(hookName string) error {
	h, err := l.hook(hookName)
	if err != nil || l.links[hookName] != nil {
		return err
	}
	// Other hooks are requested because their module was loaded: retry them.
	if h.onDemand && l.hopeless(hookName) {
		return fmt.Errorf("hook %s: no variant can work: %w", hookName, errAbsent)
	}
	l.dropReports(hookName)
	return l.attachHook(h)
}

// Detach undoes [Loaded.Attach].
func (l *Loaded) Detach(hookName string) error {
	h, err := l.hook(hookName)
	lk := l.links[hookName]
	if err != nil || lk == nil {
		return err
	}
	delete(l.links, hookName)
	l.dropReports(hookName)
	l.report(h, h.variants[0], OnDemand, nil, false)
	// Unpin is a no-op for a link that is not pinned, and not supported for kprobes before 5.15.
	err = lk.Unpin()
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = nil
	}
	return errors.Join(err, lk.Close())
}

// hopeless reports whether all variants of a hook were tried, each with a conclusive result.
func (l *Loaded) hopeless(hookName string) bool {
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	tried := func(r VariantReport) bool { return r.Hook == hookName }
	mayWork := func(r VariantReport) bool { return tried(r) && r.State != Absent && r.State != Forbidden }
	return slices.ContainsFunc(l.reports, tried) && !slices.ContainsFunc(l.reports, mayWork)
}

func (l *Loaded) hook(name string) (hook, error) {
	for _, h := range l.stem.hooks {
		if h.name == name {
			return h, nil
		}
	}
	return hook{}, fmt.Errorf("%s has no hook %q", l.Stem, name)
}

func (l *Loaded) dropReports(hookName string) {
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	l.reports = slices.DeleteFunc(l.reports, func(r VariantReport) bool { return r.Hook == hookName })
}
