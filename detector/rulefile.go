package detector

import (
	"fmt"
	"io/fs"
	"testing/fstest"

	"go.yaml.in/yaml/v4"
)

// RuleFile is a rule file that is made of something else, such as another program's configuration.
type RuleFile struct {
	Conditions map[string]ConditionSpec // by type
	Rules      []*Rule
}

// Layer returns the file as a layer for [Load]; what has no rules and no conditions is no file.
func (f *RuleFile) Layer(name string) (fs.FS, error) {
	layer := fstest.MapFS{} // a map as a file system; it has nothing of a test
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
