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

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
)

// maxTargetsFile is the size of maxTargets targets in a verbose form.
const maxTargetsFile = 4 << 20

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
	path    string
	targets *Targets
	log     *slog.Logger
	files   map[string]bool // files whose targets are in force, or that are invalid
}

// run reads the folder at once and after each change, until ctx is done. It returns nil.
func (d *targetDir) run(ctx context.Context) error {
	if d.path != "" {
		d.read()
		document.Watch(ctx, d.path, d.log, d.read)
	}
	return nil
}

// read puts the targets of all files in force. It creates a folder that does not exist. It logs an
// invalid file, whose previous targets stay.
func (d *targetDir) read() {
	_ = os.MkdirAll(d.path, 0o755) // document.Watch reports a folder that does not exist
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
