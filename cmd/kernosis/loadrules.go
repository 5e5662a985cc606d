package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
)

// loadRules returns the shipped rules with the operator's over them.
func loadRules(dir string) (*detector.RuleSet, error) { return loadLayers(dir, rules.FS) }

// loadLayers returns rules with the operator's over them.
func loadLayers(dir string, layers ...fs.FS) (*detector.RuleSet, error) {
	if dir == "" {
		return detector.Load(layers...)
	}
	return detector.LoadDir(dir, layers...)
}

// shippedRules returns the files of shipped rules whose names, without .yaml, match
// one of the patterns.
func shippedRules(patterns []string) (fs.FS, error) {
	names, err := fs.Glob(rules.FS, "*.yaml")
	if err != nil {
		return nil, err
	}
	chosen := fstest.MapFS{} // a map as a file system; it has nothing of a test
	for _, pattern := range patterns {
		found := false
		for _, name := range names {
			ok, err := path.Match(pattern, strings.TrimSuffix(name, ".yaml"))
			if err != nil {
				return nil, fmt.Errorf("shipped-rules: %q: %w", pattern, err)
			}
			if !ok {
				continue
			}
			found = true
			text, err := fs.ReadFile(rules.FS, name)
			if err != nil {
				return nil, err
			}
			chosen[name] = &fstest.MapFile{Data: text, Mode: 0o444}
		}
		if !found {
			return nil, fmt.Errorf("shipped-rules: no file of rules matches %q", pattern)
		}
	}
	return chosen, nil
}

// watchRules reloads rule files when they change. If one is invalid it logs the error, and the
// running rules stay in force.
func (p *parts) watchRules(ctx context.Context) error {
	return document.Watch(ctx, p.cfg.RulesDir, func() {
		if !p.changed() {
			return
		}
		if err := reloadRules(p.agent, p.cfg, p.mutes); err != nil {
			p.log.Error("rules not reloaded; the previous ones stay in force", "error", err)
			return
		}
		p.log.Info("rules reloaded", "dir", p.cfg.RulesDir)
	})
}

// changes returns a function that reports whether the rules of a directory have changed since
// its last call, or since now.
func changes(dir string) func() bool {
	last, lastErr := detector.Contents(dir)
	return func() bool {
		now, err := detector.Contents(dir)
		same := now == last && err == nil && lastErr == nil
		last, lastErr = now, err
		return !same
	}
}

// reloadRules puts the rules in force as they are now.
func reloadRules(a *agent, cfg agentConfig, mutes *muteFile) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	next, _, err := cfg.rulesNow()
	if err != nil {
		return err
	}
	if a.problems != nil {
		a.problems.Known(problemKinds(next))
	}
	a.replace(next)
	a.warnOfLabels(next)
	mutes.replaced(next)
	return nil
}
