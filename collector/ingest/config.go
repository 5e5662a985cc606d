package ingest

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Bounds of a configuration. Each condition is a source to the engine, which keeps
// 256.
const (
	MaxSources         = 32
	MaxTotalConditions = 100
	// DefaultHeartbeat is how long a report counts where neither it nor the
	// configuration says: three of the 30 s at which node-problem-detector's own
	// checks run, so that one that comes late is not missed.
	DefaultHeartbeat = 90 * time.Second
)

// Config is who may report what.
type Config struct {
	Sources []Source
	// Owner names the rule that sets a condition type which no source has, for the
	// answer to a daemon that reports that type; "": there is none. It may be nil.
	Owner func(conditionType string) string
	// Earlier returns how long ago an earlier run of the agent knew that a source sees, by its
	// stem; false: it did not. It may be nil.
	Earlier func(stem string) (ago time.Duration, ok bool)
	Log     *slog.Logger // nil: none
	FS      hostfs.FS    // has the machine's /proc; zero: this process'
}

// Source is one problem daemon.
type Source struct {
	Name string
	UIDs []uint32 // users it may run as; none: root alone
	// Pods has processes of any pod report, besides those of the machine and of the agent's
	// own pod.
	Pods       bool
	Conditions []string // types it may set; none: it reports events only
	// Heartbeat is how long a report counts that doesn't say; 0: DefaultHeartbeat.
	Heartbeat time.Duration
}

// Check returns all that is wrong, with fields such as sources[0].conditions[2].
func (c *Config) Check() document.Errors {
	k := configCheck{names: map[string]int{}, types: map[string]string{}}
	if len(c.Sources) > MaxSources {
		k.errs.Add("sources", "%d sources, at most %d", len(c.Sources), MaxSources)
	}
	total := 0
	for i := range c.Sources {
		k.source(i, &c.Sources[i])
		total += len(c.Sources[i].Conditions)
	}
	if total > MaxTotalConditions {
		k.errs.Add("sources", "%d conditions of all sources, at most %d", total, MaxTotalConditions)
	}
	return k.errs
}

type configCheck struct {
	errs  document.Errors
	names map[string]int    // index by source name
	types map[string]string // source name by condition type, in lower case
}

func (k *configCheck) errorf(source int, field, format string, args ...any) {
	k.errs.Add(fmt.Sprintf("sources[%d].%s", source, field), format, args...)
}

// sourceName keeps names fit to be part of a rule's, which has 63 characters.
var sourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`) //nolint:gochecknoglobals // a constant

// pascalCase is what Kubernetes wants of condition types and reasons, as rules have it.
var pascalCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,127}$`) //nolint:gochecknoglobals // a constant

func (k *configCheck) source(i int, s *Source) {
	switch first, twice := k.names[s.Name]; {
	case s.Name == "":
		k.errorf(i, "name", "is missing")
	case !sourceName.MatchString(s.Name):
		k.errorf(i, "name", "%.100q is not lower case with dashes (at most 40 characters)", s.Name)
	case twice:
		k.errorf(i, "name", "%q is that of sources[%d] already", s.Name, first)
	default:
		k.names[s.Name] = i
	}
	if s.Heartbeat != 0 && (s.Heartbeat < client.MinValid || s.Heartbeat > client.MaxValid) {
		k.errorf(i, "heartbeat", "%v, want %v to %v", s.Heartbeat, client.MinValid, client.MaxValid)
	}
	if len(s.Conditions) > client.MaxConditions {
		k.errorf(i, "conditions", "%d, at most %d", len(s.Conditions), client.MaxConditions)
	}
	for j, t := range s.Conditions {
		field := fmt.Sprintf("conditions[%d]", j)
		if err := CheckType(t); err != nil {
			k.errorf(i, field, "%v", err)
			continue
		}
		// Names of rules are in lower case: types that differ in that alone are one.
		if first, ok := k.types[strings.ToLower(t)]; ok {
			k.errorf(i, field, "condition %s is that of source %s already", t, first)
			continue
		}
		k.types[strings.ToLower(t)] = s.Name
	}
}

// CheckType reports what is wrong with a condition type.
func CheckType(t string) error {
	switch {
	case t == "":
		return errors.New("a condition has no type")
	case event.KubernetesCondition(t):
		return fmt.Errorf("condition %s belongs to Kubernetes itself, as all that end in Pressure", t)
	case !pascalCase.MatchString(t):
		return fmt.Errorf("condition %.100q is not PascalCase (letters and digits, at most 128)", t)
	}
	return nil
}

// CheckName is the name under which a condition of a source is reported as a check.
func CheckName(source, conditionType string) string { return source + "/" + conditionType }

// EventsName is the name under which events of a source are reported as a check.
func EventsName(source string, severity client.Severity) string {
	return source + "/" + string(severity)
}
