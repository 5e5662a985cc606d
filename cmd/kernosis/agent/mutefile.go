package agent

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// MutesFile is the file of mutes in the state directory.
const MutesFile = "mutes.yaml"

// MutesPath returns the path of the file of mutes.
func (c *Config) MutesPath() string {
	if c.Mutes != "" {
		return c.Mutes
	}
	return filepath.Join(c.StateDir, MutesFile)
}

// muteFile puts what a file of mutes says in force, and what it says from then
// on. While it has a mistake, the mutes of before stay, also across a restart: the
// engine's state holds them.
type muteFile struct {
	path string
	a    *pipeline

	mu    sync.Mutex
	rules *detector.RuleSet
	last  []byte // what was read last; nil: nothing yet
}

// watch reads the file again when it changes, until ctx ends. A folder that is
// not there is reported: then only a restart sees the file.
func (f *muteFile) watch(ctx context.Context) error {
	if err := document.Watch(ctx, filepath.Dir(f.path), f.read); err != nil {
		f.a.log.Warn("mutes are not reloaded when the file changes", "error", err)
	}
	return nil
}

// replaced has the file read by the rules that are in force now.
func (f *muteFile) replaced(rules *detector.RuleSet) {
	f.mu.Lock()
	f.rules, f.last = rules, nil
	f.mu.Unlock()
	f.read()
}

// read puts the file in force where it is not what was read last: other files
// of the folder change too.
func (f *muteFile) read() {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := ReadMutes(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		data, err = []byte{}, nil // no file, no mute
	case err == nil && len(data) == 0:
		data = []byte("\n") // which is no file of mutes, and is reported
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
		f.a.log.Warn("mutes that the rules don't know have no effect; the others do", "error", unknown)
	}
	f.last = data
	f.a.setMutes(list)
}

// ReadMutes reads no more than shows that a file is too big.
func ReadMutes(path string) ([]byte, error) { return document.ReadAtMost(path, detector.MaxFile+1) }

func (a *pipeline) setMutes(list []problem.Mute) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := journal.NewEntry(a.now())
	if e.Transitions = a.engine.SetMutes(list, e.Moment()); len(e.Transitions) > 0 {
		inForce := append([]problem.Mute{}, a.engine.Mutes()...) // none is [], not null
		e.Mutes = &inForce
	}
	a.report(e)
}
