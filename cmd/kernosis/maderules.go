package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/detector"
)

// madeRules are rules that follow from the configuration, as a rule file has them.
type madeRules struct {
	APIVersion string                 `yaml:"apiVersion"`
	Conditions map[string]madeHealthy `yaml:"conditions,omitempty"`
	Rules      []madeRule             `yaml:"rules"`
}

type madeHealthy struct {
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
}

type madeRule struct {
	Name      string   `yaml:"name"`
	Events    []string `yaml:"events,flow"`
	When      string   `yaml:"when"`
	GroupBy   []string `yaml:"groupBy,omitempty,flow"`
	Condition string   `yaml:"condition,omitempty"`
	Reason    string   `yaml:"reason"`
	Message   string   `yaml:"message"`
	Severity  string   `yaml:"severity,omitempty"`
	ClearWhen string   `yaml:"clearWhen,omitempty"`
}

func newMadeRules() *madeRules {
	return &madeRules{APIVersion: detector.APIVersion, Conditions: map[string]madeHealthy{}}
}

// layer returns a layer of rules with one file, or without rules none.
func (m *madeRules) layer(file string) (fs.FS, error) {
	layer := fstest.MapFS{} // a map as a file system; it has nothing of a test
	if len(m.Rules) == 0 {
		return layer, nil
	}
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	layer[file] = &fstest.MapFile{Data: data, Mode: 0o444}
	return layer, nil
}

// alreadySet returns an error where another rule sets a condition that one rule has for
// itself: whoever came second would make it True and never see why.
func alreadySet(rules *detector.RuleSet, condition, own, of string) error {
	all := rules.Rules()
	i := slices.IndexFunc(all, func(r *detector.Rule) bool { return strings.EqualFold(r.Condition, condition) && r.Name != own })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("condition %s%s is set by rule %s (%s:%d) already", condition, of, all[i].Name, all[i].File, all[i].Line)
}
