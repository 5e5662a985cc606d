package detector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// APIVersion is the first line of every rule file.
const APIVersion = "rules.kernosis.io/v1"

// Bounds and defaults of rules.
const (
	// MaxRules is the most rules a set holds. Every event is tested by the
	// rules of its kind, about 0.5 µs each.
	MaxRules = 1000
	// DefaultMaxGroups is how many problems one rule follows at a time: more
	// than a node has containers (250 pods), at about 2 KiB each.
	DefaultMaxGroups = 1000
	// maxMaxGroups bounds what a rule may ask for.
	maxMaxGroups = 10_000
	// maxThreshold bounds a window, in events; each costs 32 bytes.
	maxThreshold = 1000
	// maxPeriod bounds every duration of a rule.
	maxPeriod = 30 * 24 * time.Hour
	// DefaultClearAfter is the quiet time after which a temporary problem is
	// over: the range of a series of Events that a person sees as one.
	DefaultClearAfter = 5 * time.Minute
)

// Rule says what makes a problem of an event. It is data; a rule without a
// Condition is temporary. See docs/rules.md. The tags are the keys of rule files, by which
// [RuleFile] writes it.
type Rule struct {
	Name      string           `yaml:"name"`
	Fault     string           `yaml:"fault,omitempty"` // identity across sources; Name where the file gives none
	Events    []event.Kind     `yaml:"events,flow"`
	When      string           `yaml:"when,omitempty"` // CEL to bool; empty: every event of the kinds
	GroupBy   []string         `yaml:"groupBy,omitempty,flow"`
	Condition string           `yaml:"condition,omitempty"`
	Reason    string           `yaml:"reason"`
	Message   string           `yaml:"message"`
	Severity  problem.Severity `yaml:"severity,omitempty"`
	// SeverityWhen has CEL to bool by severity: of an event for which some are true the
	// problem has the worst, else Severity.
	SeverityWhen map[problem.Severity]string `yaml:"severityWhen,omitempty"`
	Threshold    Threshold                   `yaml:"threshold,omitempty"`
	For          time.Duration               `yaml:"for,omitempty"`        // level signals only
	AbsentFor    time.Duration               `yaml:"absentFor,omitempty"`  // the problem is that no event matches for so long; 0: that one does
	ClearAfter   time.Duration               `yaml:"clearAfter,omitempty"` // quiet time; 0: not by quiet
	ClearWhen    string                      `yaml:"clearWhen,omitempty"`
	Latched      bool                        `yaml:"latched,omitempty"`
	DependsOn    []string                    `yaml:"dependsOn,omitempty,flow"`
	Equal        map[string]string           `yaml:"equal,omitempty"` // of dependsOn: field of GroupBy → that of the cause's which must have the same value
	MaxGroups    int                         `yaml:"maxGroups,omitempty"`
	RateLimit    RateLimit                   `yaml:"rateLimit,omitempty"`
	Doc          string                      `yaml:"doc,omitempty"`

	// Of log rules, whose Events is [log] and nothing else.
	Pattern      string   `yaml:"pattern,omitempty"`          // RE2: which lines; empty: not a log rule
	ClearPattern string   `yaml:"clearPattern,omitempty"`     // RE2: the lines that end the problem of their group
	Logs         []string `yaml:"logs,omitempty,flow"`        // names of the logs; empty: all
	FallbackFor  []string `yaml:"fallbackFor,omitempty,flow"` // stems: the rule is not asked while one of them sees
	Lines        int      `yaml:"lines,omitempty"`            // how many lines both may span; 0: as the patterns say
	// AnchorEnd has Pattern match as node-problem-detector does: its
	// configurations ask for it.
	AnchorEnd bool `yaml:"anchorEnd,omitempty"`

	File  string `yaml:"-"` // where it was read
	Line  int    `yaml:"-"`
	Layer int    `yaml:"-"` // which of the layers given to Load; the lowest is 0

	compiled `yaml:"-"`
}

// Threshold asks for a number of matching events in a sliding window.
type Threshold struct {
	Count    int           `yaml:"count"` // 0: no threshold
	Within   time.Duration `yaml:"within"`
	Distinct string        `yaml:"distinct,omitempty"` // field whose different values are counted; empty: events are counted
}

// compiled is what the engine runs.
type compiled struct {
	when         *expr
	severityWhen []severityWhen // the worst first
	message      *message
	groupBy      []*event.Field
	distinct     *event.Field
	clearWhen    *expr
	clearKinds   []event.Kind
	stems        []string // of kinds whose sources have no names of their own
	named        []named  // logs, checks and gauges
	gauges       []string // names of the gauges it looks at
	level        bool     // all its kinds are level signals: a start that an event of another kind ends
}

// Temporary reports whether each matching event is a problem of its own.
func (r *Rule) Temporary() bool { return r.Condition == "" }

// sameProblem reports whether problems of the two rules are the same thing, so
// that a reload may keep them.
func (r *Rule) sameProblem(o *Rule) bool {
	return r.Name == o.Name && r.Fault == o.Fault && r.Condition == o.Condition && r.awaits() == o.awaits() && slices.Equal(r.GroupBy, o.GroupBy)
}

// ConditionSpec is what a node condition says while nothing is wrong.
type ConditionSpec struct {
	Type           string `yaml:"-"`
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
}
