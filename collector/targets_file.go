package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// maxTargetsFile is the size of maxTargets targets in a verbose form.
const maxTargetsFile = 4 << 20

// retryDir is the pause after a failure before the folder is tried again: each failure is logged.
const retryDir = 30 * time.Second

// targetFile is the format of a file of targets.
type targetFile struct {
	Targets []yaml.Node `yaml:"targets"`
}

type targetEntry struct {
	Name        string `yaml:"name"`
	Address     string `yaml:"address"`
	Port        uint16 `yaml:"port"`
	NetNS       uint32 `yaml:"netns"`
	TargetNetNS uint32 `yaml:"targetNetns"`
	SlowAfter   string `yaml:"slowAfter"`
	SlowOpeners string `yaml:"slowOpeners"`
}

// parseTargets parses a file of targets. Its errors contain file and line; unknown keys are errors.
func parseTargets(name string, data []byte) ([]Target, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var file targetFile
	if err := dec.Decode(&file); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one document", name)
	}
	if len(file.Targets) > maxTargets {
		return nil, fmt.Errorf("%s: too many targets: %d, at most %d", name, len(file.Targets), maxTargets)
	}
	var errs []error
	targets := make([]Target, 0, len(file.Targets))
	for i := range file.Targets {
		node := &file.Targets[i]
		target, err := parseTarget(node)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, node.Line, err))
			continue
		}
		targets = append(targets, target)
	}
	return targets, errors.Join(errs...)
}

func parseTarget(node *yaml.Node) (Target, error) {
	var e targetEntry
	if err := node.Load(&e, yaml.WithKnownFields()); err != nil {
		return Target{}, err
	}
	t := Target{Name: e.Name, Port: e.Port, NetNS: e.NetNS, TargetNetNS: e.TargetNetNS, SlowOpeners: e.SlowOpeners}
	if e.Address != "" {
		var err error
		if t.Address, err = netip.ParseAddr(e.Address); err != nil {
			return Target{}, fmt.Errorf("address: %w", err)
		}
	}
	if e.SlowAfter != "" {
		var err error
		if t.SlowAfter, err = time.ParseDuration(e.SlowAfter); err != nil {
			return Target{}, fmt.Errorf("slowAfter: %w", err)
		}
	}
	return t.check()
}

// targetDir keeps the targets of a folder's files in force, using the last valid content of each
// file. It must be used by one goroutine.
type targetDir struct {
	path       string
	targets    *Targets
	log        *slog.Logger
	newWatcher func() (*fsnotify.Watcher, error)
	watcher    *fsnotify.Watcher
	retry      time.Time       // earliest retry after a failure
	files      map[string]bool // files whose targets are in force, or that are invalid
}

func newTargetDir(path string, targets *Targets, log *slog.Logger) *targetDir {
	return &targetDir{path: path, targets: targets, log: log, newWatcher: fsnotify.NewWatcher, files: map[string]bool{}}
}

// look reads the folder at the first call and after a change; it does not wait. It creates the
// folder if it does not exist. A folder that can't be watched is an error, and is read every
// retryDir. The watcher is closed when the first call's ctx is done.
func (d *targetDir) look(ctx context.Context) error {
	if d.path == "" {
		return nil
	}
	if d.watcher == nil {
		now := time.Now()
		if now.Before(d.retry) {
			return nil
		}
		err := d.watch(ctx)
		if err != nil {
			d.retry = now.Add(retryDir)
		}
		d.read()
		return err
	}
	changed := false
	for {
		select {
		case ev, ok := <-d.watcher.Events:
			if !ok {
				return nil // closed: the agent stops
			}
			changed = true
			if ev.Has(fsnotify.Remove|fsnotify.Rename) && filepath.Clean(ev.Name) == filepath.Clean(d.path) {
				// The folder itself is gone, so the watch is too.
				_ = d.watcher.Close()
				d.watcher = nil
				d.read()
				return nil
			}
		case err, ok := <-d.watcher.Errors:
			if !ok {
				return nil
			}
			// The queue has overflowed: some change was not reported.
			d.log.Warn("can't watch targets", "dir", d.path, "error", err)
			changed = true
		default:
			if changed {
				d.read()
			}
			return nil
		}
	}
}

func (d *targetDir) watch(ctx context.Context) error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return fmt.Errorf("targets: %w", err)
	}
	w, err := d.newWatcher()
	if err != nil {
		return fmt.Errorf("watch targets: %w", err)
	}
	if err := w.Add(d.path); err != nil {
		return errors.Join(fmt.Errorf("watch targets: %w", err), w.Close())
	}
	d.watcher = w
	context.AfterFunc(ctx, func() { _ = w.Close() })
	return nil
}

// read puts the targets of all files in force. It logs an invalid file, whose previous targets
// stay.
func (d *targetDir) read() {
	present := map[string]bool{}
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Error("can't read targets; keeping the last known ones", "dir", d.path, "error", err)
		return
	}
	var paths []string
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")) {
			path := filepath.Join(d.path, name)
			paths, present[path] = append(paths, path), true
		}
	}
	// Remove first, so that there is room for what is new.
	for path := range d.files {
		if !present[path] {
			// Removing can't fail.
			_ = d.targets.Set(path, nil)
		}
	}
	d.files = present
	for _, path := range paths {
		if err := d.readFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Error("targets refused; keeping the file's previous targets", "file", path, "error", err)
		}
	}
	// Each file is a source of its own; this records that all were read. It can't fail.
	_ = d.targets.Set(d.path, nil)
}

func (d *targetDir) readFile(path string) error {
	data, err := document.ReadFile(path, maxTargetsFile)
	if err != nil {
		return err
	}
	targets, err := parseTargets(path, data)
	if err != nil {
		return err
	}
	if err := d.targets.Set(path, targets); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
