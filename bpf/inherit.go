package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// takeCounts takes over what another build lost or counted but did not report, from that build's
// pin folder. It subtracts this from what this build's notes call reported, and marks it all as
// reported in the other build's. If the agent is killed in between, it is taken over twice rather
// than never. links are the other build's links.
func (l *Loaded) takeCounts(dir string, links map[string]map[string]string) error {
	lost, err := l.foreignMap(dir, mapLost)
	if lost == nil {
		return err
	}
	defer lost.Close()
	full, err := lostElement(lost, lostRingFull)
	if err == nil {
		err = l.takeLosses(lost, reportedRingFull, full)
	}
	skipped, skipErr := l.foreignSkips(dir, links)
	if skipErr == nil {
		skipErr = l.takeLosses(lost, reportedSkipped, skipped)
	}
	if l.stem.takeCounts != nil {
		err = errors.Join(err, l.stem.takeCounts(l, dir))
	}
	return errors.Join(err, skipErr)
}

// takeLosses takes over the part of a total that the other build has not reported.
func (l *Loaded) takeLosses(from *ebpf.Map, note uint32, total uint64) error {
	reported, err := lostElement(from, note)
	if err != nil {
		return err
	}
	own, err := l.lostElement(note)
	if err != nil {
		return err
	}
	n := unreported(total, reported)
	if n == 0 {
		return nil
	}
	return errors.Join(l.noteLost(note, own-n), noteLost(from, note, total))
}

// foreignSkips returns [Loaded.Skipped] of another build.
func (l *Loaded) foreignSkips(dir string, links map[string]map[string]string) (sum uint64, err error) {
	pins, err := filepath.Glob(programPin(dir, "*"))
	if err != nil {
		return 0, err
	}
	serves := func(hook, program string) bool { return links[hook][program] != "" }
	for _, pin := range pins {
		name := strings.TrimPrefix(pin, programPin(dir, ""))
		p, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			return 0, fmt.Errorf("program %s: %w", name, err)
		}
		stats, err := p.Stats()
		if err := errors.Join(err, p.Close()); err != nil {
			return 0, fmt.Errorf("statistics of %s: %w", name, err)
		}
		if !l.harmless(name, serves) {
			sum += stats.RecursionMisses
		}
	}
	return sum, nil
}

// foreignMap opens a map of another build, which must match this build's except in size. It returns
// nil without an error if the other build has no such map.
func (l *Loaded) foreignMap(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(mapPin(dir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		like := l.spec.Maps[name].Copy()
		like.MaxEntries = m.MaxEntries()
		if err = like.Compatible(m); err != nil {
			err = errors.Join(err, m.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("map %s of another build: %w", name, err)
	}
	return m, nil
}

// takeStorms takes over the disk errors that another build counted without a record.
func takeStorms(l *Loaded, dir string) error {
	storms, err := l.foreignMap(dir, mapStorms)
	if storms == nil {
		return err
	}
	defer storms.Close()
	reported, err := l.foreignMap(dir, mapStormsReported)
	if reported == nil {
		return err
	}
	defer reported.Close()
	var kind DiskErrorKind
	var storm diskStorm
	all := storms.Iterate()
	for all.Next(&kind, &storm) {
		already, err := reportedStorm(reported, &kind)
		if err != nil {
			return err
		}
		n := unreported(storm.More, already)
		if n == 0 {
			continue
		}
		own, err := reportedStorm(l.maps[mapStormsReported], &kind)
		if err != nil {
			return err
		}
		// The storm continues here, unless this build has already started one.
		goesOn := diskStorm{Began: storm.Began, Records: storm.Records}
		if err := l.maps[mapStorms].Update(&kind, &goesOn, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("take over a storm of disk errors: %w", err)
		}
		if err := errors.Join(l.maps[mapStormsReported].Put(&kind, own-n), reported.Put(&kind, storm.More)); err != nil {
			return fmt.Errorf("take over a storm of disk errors: %w", err)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read storms of disk errors: %w", err)
	}
	return nil
}
