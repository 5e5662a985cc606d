package detector

import (
	"fmt"
	"io/fs"
	"testing/fstest"

	"go.yaml.in/yaml/v4"
)

// RuleFile is a rule file that is generated, for example from another program's configuration.
type RuleFile struct {
	Conditions map[string]ConditionSpec // by type
	Rules      []*Rule
}

// Layer returns the file as a layer for [Load]. The layer is empty if there are no rules and no
// conditions.
func (f *RuleFile) Layer(name string) (fs.FS, error) {
	layer := fstest.MapFS{} // an in-memory file system, despite the package name
	if len(f.Conditions)+len(f.Rules) == 0 {
		return layer, nil
	}
	data, err := yaml.Marshal(struct {
		APIVersion string                   `yaml:"apiVersion"`
		Conditions map[string]ConditionSpec `yaml:"conditions,omitempty"`
		Rules      []*Rule                  `yaml:"rules,omitempty"`
	}{APIVersion, f.Conditions, f.Rules})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	layer[name] = &fstest.MapFile{Data: data, Mode: 0o444}
	return layer, nil
}
