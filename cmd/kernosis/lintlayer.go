package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing/fstest"

	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
)

// maxLintFile is the largest size of a file that is read, in bytes; no format here allows more.
const maxLintFile = 4 << 20

// addRules adds the rule files to in, as one layer over the shipped rules. The shipped rules are only
// used for references by name. It returns the rules of both.
func addRules(in *lint.Input, files []lintFile) (*detector.RuleSet, error) {
	layer := make(fstest.MapFS)      // a map as a file system; nothing in it is specific to tests
	paths := make(map[string]string) // by name in the layer, which has no folders
	for i, f := range files {
		if filepath.Ext(f.path) == ".json" {
			continue
		}
		if !f.named && !bytes.Contains(f.data, []byte("rules.kernosis.io/")) {
			continue // some other YAML of the folder
		}
		name := fmt.Sprintf("%04d.yaml", i)
		layer[name], paths[name] = &fstest.MapFile{Data: f.data}, f.path
	}
	set, err := detector.Load(detector.Shipped(), layer)
	if list := (detector.Errors)(nil); errors.As(err, &list) {
		for _, e := range list {
			if path, ok := paths[e.File]; ok {
				e.File = path
			}
		}
		return nil, list
	}
	if err != nil {
		return nil, err
	}
	in.FromRules(set, func(file string) bool { return paths[file] != "" })
	for i := range in.Rules {
		if path, ok := paths[in.Rules[i].File]; ok {
			in.Rules[i].File = path
		}
	}
	return set, nil
}

// addServices adds the conditions of the services that agents probe, because alerts may refer to
// them and no rule file has them. It skips a condition that a file has.
func addServices(in *lint.Input) {
	for _, s := range service.Known() {
		if slices.ContainsFunc(in.Conditions, func(c lint.Condition) bool { return c.Type == s.Condition }) {
			continue
		}
		in.Conditions = append(in.Conditions, lint.Condition{Type: s.Condition})
		in.Rules = append(in.Rules, lint.Rule{Reason: s.Condition, Condition: s.Condition, Healthy: s.HealthyReason, Context: true})
	}
}
