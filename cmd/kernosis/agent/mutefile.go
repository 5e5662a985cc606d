package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// MutesFile is the file of mutes in the state directory.
const MutesFile = "mutes.yaml"

// MutesPath returns the path of the file of mutes.
func (c *Config) MutesPath() string {
	return cmp.Or(c.Mutes, filepath.Join(c.StateDir, MutesFile))
}

// muteFile applies the mutes of a file, and applies them again when the file changes. While the
// file is invalid, the previous mutes stay in force, also across a restart, because the engine's
// state has them.
type muteFile struct {
	path string
	a    *pipeline

	mu      sync.Mutex
	rules   *detector.RuleSet
	last    []byte         // content that was applied last; nil: none yet
	earlier bool           // the file was written before this boot
	booted  time.Time      // when this boot was, by the wall clock at the last look
	ended   []problem.Mute // of the file, as of when it was applied: the clock may have been ahead
}

// bootedAt returns the time of the boot by the wall clock.
func bootedAt() time.Time { return time.Now().Round(0).Add(-hostfs.BootTime()) }

// watch reloads the file when it changes, until ctx ends.
func (f *muteFile) watch(ctx context.Context) error {
	document.Watch(ctx, filepath.Dir(f.path), f.a.log, f.read)
	return nil
}

// followClock looks every minute whether the wall clock was set, until ctx ends.
func (f *muteFile) followClock(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hostfs.UntilBeat(time.Minute)):
			f.clockIs(bootedAt())
		}
	}
}

// clockIs applies a file of an earlier boot again if the wall clock was set by at least a minute: until
// the network is up, the clock may be wrong. Mutes of this boot keep their durations, but those that had
// already ended when they were read may begin.
func (f *muteFile) clockIs(booted time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if booted.Sub(f.booted).Abs() < time.Minute {
		return
	}
	f.booted = booted
	if f.earlier {
		f.last = nil
		f.apply((*detector.Engine).RenewMutes)
		return
	}
	list := f.ended
	if f.ended = endedOf(list); len(f.ended) == len(list) {
		return
	}
	f.a.setMutes(list, func(e *detector.Engine, list []problem.Mute, now event.Moment) []problem.Transition {
		return e.SetMutes(slices.Concat(e.Mutes(), list), now)
	})
}

// endedOf returns those of the mutes that have ended by the wall clock.
func endedOf(list []problem.Mute) (ended []problem.Mute) {
	for _, m := range list {
		if !m.Until.After(time.Now()) {
			ended = append(ended, m)
		}
	}
	return ended
}

// replaced reads the file again with rules, which are now in force.
func (f *muteFile) replaced(rules *detector.RuleSet) {
	f.mu.Lock()
	f.rules, f.last = rules, nil
	f.mu.Unlock()
	f.read()
}

// read applies the file if its content has changed since the last time: watch also calls it when
// other files of the folder change.
func (f *muteFile) read() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apply((*detector.Engine).SetMutes)
}

// setter is a method of the engine that sets its mutes.
type setter func(*detector.Engine, []problem.Mute, event.Moment) []problem.Transition

func (f *muteFile) apply(set setter) {
	data, err := ReadMutes(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		data, err = []byte{}, nil // without a file there are no mutes
	case err == nil && len(data) == 0:
		data = []byte("\n") // an empty file is invalid: parse it, to report that
	}
	if err == nil && f.last != nil && bytes.Equal(data, f.last) {
		return
	}
	var list []problem.Mute
	var unknown detector.Errors
	if err == nil && len(data) > 0 {
		f.last = data
		list, unknown, err = detector.ParseMutes(f.path, data, f.rules)
	}
	if err != nil {
		f.a.log.Error("mutes not reloaded; the ones in force stay", "error", err)
		return
	}
	if len(unknown) > 0 {
		f.a.log.Warn("mutes of unknown rules or fields have no effect; the others are in force", "error", unknown)
	}
	f.last, f.earlier, f.ended = data, false, endedOf(list)
	if info, err := os.Stat(f.path); err == nil {
		f.earlier = info.ModTime().Before(bootedAt()) || info.ModTime().After(time.Now())
	}
	f.a.setMutes(list, set)
}

// ReadMutes reads a file of mutes, but at most one byte more than the size limit.
func ReadMutes(path string) ([]byte, error) { return document.ReadAtMost(path, detector.MaxFile+1) }

func (a *pipeline) setMutes(list []problem.Mute, set setter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := journal.NewEntry(a.now())
	if e.Transitions = set(a.engine, list, e.Moment()); len(e.Transitions) > 0 {
		inForce := append([]problem.Mute{}, a.engine.Mutes()...) // encode no mutes as [], not null
		e.Mutes = &inForce
	}
	a.report(e)
}
