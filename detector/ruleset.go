package detector

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/logpattern"
)

// MaxFile is the largest file that is read, in bytes.
const MaxFile = document.MaxFile

// Error is one mistake in a rule file: file, line, column, field and text.
type Error = document.Error

// Errors holds every mistake found in all files. errors.As finds it in the error
// that [Load] returns.
type Errors = document.Errors

// RuleSet is a checked, compiled set of rules and the condition types they
// use. It is immutable and safe for concurrent use.
type RuleSet struct {
	rules      []*Rule
	conditions []ConditionSpec // sorted by type
	patterns   *logpattern.Set // of all log rules
	owners     []patternOwner  // by index in patterns
	podLabels  []string        // names of the rules that read pod.labels
}

// Rules returns the rules in file order. The Rules must not be changed.
func (s *RuleSet) Rules() []*Rule { return slices.Clone(s.rules) }

// Rule returns the rule of that name.
func (s *RuleSet) Rule(name string) (*Rule, bool) {
	for _, r := range s.rules {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// Names returns the names of the rules, sorted.
func (s *RuleSet) Names() []string {
	names := make([]string, len(s.rules))
	for i, r := range s.rules {
		names[i] = r.Name
	}
	slices.Sort(names)
	return names
}

// Conditions returns the registered condition types, sorted.
func (s *RuleSet) Conditions() []ConditionSpec { return slices.Clone(s.conditions) }

// PodLabelReaders returns the names of the rules that read pod.labels. If there are none, events
// need no pod labels. The slice must not be changed.
func (s *RuleSet) PodLabelReaders() []string { return s.podLabels }

// Load reads the rule files (*.yaml and *.yml, not *_test.yaml, not hidden, no subdirectories) of
// one or more layers. A rule of a later layer replaces the whole rule of the same name of an
// earlier one; so does a condition type. Within a layer names are unique. References (dependsOn,
// condition) may reach across layers. The error joins all mistakes of all files as [Errors]; then
// no rule set is returned.
func Load(layers ...fs.FS) (*RuleSet, error) { return load(layers) }

// LoadDir is Load with a directory as the topmost layer above the given ones; empty: without one.
// Mistakes in it are reported with the directory's path.
func LoadDir(path string, under ...fs.FS) (*RuleSet, error) {
	if path == "" {
		return load(under)
	}
	return load(under, layer{fsys: os.DirFS(path), dir: path})
}

// LoadFile is LoadDir with a single file of any name instead of a directory.
func LoadFile(path string, under ...fs.FS) (*RuleSet, error) {
	dir := filepath.Dir(path)
	return load(under, layer{fsys: os.DirFS(dir), dir: dir, only: filepath.Base(path)})
}

// NewSince returns the names of the rules, except log rules, that are missing from an older set or
// that match or count differently there: they may have missed events that the older rules got. It
// also returns the rules whose fault loses an older rule together with the problems that the older
// rule began.
func (s *RuleSet) NewSince(older *RuleSet) (names []string) {
	for _, r := range s.rules {
		if r.isLog() {
			continue
		}
		o, ok := older.Rule(r.Name)
		if !ok || !r.sameProblem(o) || r.When != o.When || r.Threshold != o.Threshold || !slices.Equal(r.Events, o.Events) || s.losesPartner(r, older) {
			names = append(names, r.Name)
		}
	}
	return names
}

// losesPartner reports whether the older set has a rule of r's fault and condition whose problems
// end when s replaces that set.
func (s *RuleSet) losesPartner(r *Rule, older *RuleSet) bool {
	return slices.ContainsFunc(older.rules, func(o *Rule) bool {
		if o.Fault != r.Fault || o.Condition != r.Condition {
			return false
		}
		kept, ok := s.Rule(o.Name)
		return !ok || !kept.sameProblem(o)
	})
}
