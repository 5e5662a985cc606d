package detector

import (
	"fmt"
	"io/fs"
	"slices"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// APIVersion is the first line of every rule file.
const APIVersion = "rules.kernosis.io/v1"

// Bounds and defaults of rules.
const (
	// MaxRules is the most rules a set holds. Every event is tested against the
	// rules of its kind, which takes about 0.5 µs each.
	MaxRules = 1000
	// DefaultMaxGroups is how many problems one rule tracks at a time: more
	// than a node has containers (250 pods), at about 2 KiB each.
	DefaultMaxGroups = 1000
	// maxMaxGroups bounds the maxGroups of a rule.
	maxMaxGroups = 10_000
	// maxThreshold bounds a window, in events; each costs 32 bytes.
	maxThreshold = 1000
	// maxPeriod bounds every duration of a rule.
	maxPeriod = 30 * 24 * time.Hour
	// DefaultClearAfter is the quiet time after which a temporary problem
	// ends: a person considers Events within this time as one series.
	DefaultClearAfter = 5 * time.Minute
)

// Rule defines which events are a problem. It is plain data. A rule without a Condition is
// temporary. See docs/rules.md. The tags are the keys of rule files, which [RuleFile] writes.
type Rule struct {
	Name      string           `yaml:"name"`
	Fault     string           `yaml:"fault,omitempty"` // identity across sources; defaults to Name
	Events    []event.Kind     `yaml:"events,flow"`
	When      string           `yaml:"when,omitempty"` // CEL to bool; empty: every event of the kinds
	GroupBy   []string         `yaml:"groupBy,omitempty,flow"`
	Condition string           `yaml:"condition,omitempty"`
	Reason    string           `yaml:"reason"`
	Message   string           `yaml:"message"`
	Severity  problem.Severity `yaml:"severity,omitempty"`
	// SeverityWhen maps severities to CEL expressions (bool). The problem gets the worst
	// severity whose expression is true for the event, else Severity.
	SeverityWhen map[problem.Severity]string `yaml:"severityWhen,omitempty"`
	Threshold    Threshold                   `yaml:"threshold,omitempty"`
	For          time.Duration               `yaml:"for,omitempty"`        // level signals only
	AbsentFor    time.Duration               `yaml:"absentFor,omitempty"`  // fires if no event matches for this long; 0: fires on matching events
	ClearAfter   time.Duration               `yaml:"clearAfter,omitempty"` // quiet time that ends the problem; 0: quiet does not end it
	ClearWhen    string                      `yaml:"clearWhen,omitempty"`
	Latched      bool                        `yaml:"latched,omitempty"`
	DependsOn    []string                    `yaml:"dependsOn,omitempty,flow"`
	Equal        map[string]string           `yaml:"equal,omitempty"` // for dependsOn: field of this GroupBy → field of the cause's GroupBy that must have the same value
	MaxGroups    int                         `yaml:"maxGroups,omitempty"`
	RateLimit    RateLimit                   `yaml:"rateLimit,omitempty"`
	Doc          string                      `yaml:"doc,omitempty"`

	// Fields of log rules, whose Events is exactly [log].
	Pattern      string   `yaml:"pattern,omitempty"`          // RE2: which lines; empty: not a log rule
	ClearPattern string   `yaml:"clearPattern,omitempty"`     // RE2: the lines that end the problem of their group
	Logs         []string `yaml:"logs,omitempty,flow"`        // names of the logs; empty: all but event.CrashLog
	FallbackFor  []string `yaml:"fallbackFor,omitempty,flow"` // stems: the rule is inactive while a source of one of them is up
	Lines        int      `yaml:"lines,omitempty"`            // how many lines both patterns may span; 0: derived from the patterns
	// AnchorEnd makes Pattern match as in node-problem-detector, for its configurations.
	AnchorEnd bool `yaml:"anchorEnd,omitempty"`

	File  string `yaml:"-"` // file it was read from
	Line  int    `yaml:"-"`
	Layer int    `yaml:"-"` // index of the layer given to Load; the lowest is 0

	compiled `yaml:"-"`
}

// Threshold requires a number of matching events in a sliding window.
type Threshold struct {
	Count    int           `yaml:"count"` // 0: no threshold
	Within   time.Duration `yaml:"within"`
	Distinct string        `yaml:"distinct,omitempty"` // field whose distinct values are counted; empty: events are counted
}

// compiled is what the engine runs.
type compiled struct {
	when         *expr
	severityWhen []severityWhen // worst first
	message      *message
	groupBy      []*event.Field
	distinct     *event.Field
	clearWhen    *expr
	clearKinds   []event.Kind
	stems        []string // of kinds whose sources have no names of their own
	named        []named  // logs, checks and gauges
	gauges       []string // names of the gauges it reads
	level        bool     // all its kinds are level signals, which an event of another kind ends
}

// Temporary reports whether the rule sets no condition.
func (r *Rule) Temporary() bool { return r.Condition == "" }

// sameProblem reports whether a reload that replaces one rule by the other may keep its problems.
func (r *Rule) sameProblem(o *Rule) bool {
	return r.Name == o.Name && r.Fault == o.Fault && r.Condition == o.Condition && r.awaits() == o.awaits() && slices.Equal(r.GroupBy, o.GroupBy)
}

// ConditionSpec is a node condition type, with its reason and message while nothing is wrong.
type ConditionSpec struct {
	Type           string `yaml:"-"`
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
}

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
