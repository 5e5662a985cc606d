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

// Bounds of a configuration. Each condition is a source of the engine, which keeps 256.
const (
	MaxSources         = 32
	MaxTotalConditions = 100
	// DefaultHeartbeat is how long a report is valid unless it or the configuration sets that: three
	// times node-problem-detector's 30 s, so that a late report is still in time.
	DefaultHeartbeat = 90 * time.Second
)

// Config defines who may report what.
type Config struct {
	Sources []Source
	// Owner returns the name of the rule that sets a condition type which belongs to no source,
	// for the answer to a daemon that reports that type; "" if there is none. It may be nil.
	Owner func(conditionType string) string
	// Earlier returns how long ago an earlier run of the agent knew the source with this stem to
	// be up; false if it did not. It may be nil.
	Earlier func(stem string) (ago time.Duration, ok bool)
	Log     *slog.Logger // may be nil
	FS      hostfs.FS    // with the machine's /proc; zero: this process's
}

// Source is one problem daemon.
type Source struct {
	Name string
	UIDs []uint32 // users that the daemon may run as; empty: only root
	// Pods allows processes of any pod to report, not only the machine's and those of the agent's pod.
	Pods       bool
	Conditions []string // types that it may set; empty: it reports events only
	// Heartbeat is how long a report without validFor is valid; 0: DefaultHeartbeat.
	Heartbeat time.Duration
}

// Check returns all mistakes, with fields such as sources[0].conditions[2].
func (c *Config) Check() document.Errors {
	var errs document.Errors
	if len(c.Sources) > MaxSources {
		errs.Add("sources", "%d sources, at most %d", len(c.Sources), MaxSources)
	}
	names := map[string]int{}    // index by source name
	types := map[string]string{} // source name by condition type, in lower case
	total := 0
	for i, s := range c.Sources {
		wrong := func(field, format string, args ...any) {
			errs.Add(fmt.Sprintf("sources[%d].%s", i, field), format, args...)
		}
		switch first, twice := names[s.Name]; {
		case s.Name == "":
			wrong("name", "is missing")
		case !sourceName.MatchString(s.Name):
			wrong("name", "%.100q: want lower-case letters, digits and dashes (at most 40 characters)", s.Name)
		case twice:
			wrong("name", "%q is already used by sources[%d]", s.Name, first)
		default:
			names[s.Name] = i
		}
		if s.Heartbeat != 0 && (s.Heartbeat < client.MinValid || s.Heartbeat > client.MaxValid) {
			wrong("heartbeat", "%v, want %v to %v", s.Heartbeat, client.MinValid, client.MaxValid)
		}
		if len(s.Conditions) > client.MaxConditions {
			wrong("conditions", "%d, at most %d", len(s.Conditions), client.MaxConditions)
		}
		for j, t := range s.Conditions {
			field := fmt.Sprintf("conditions[%d]", j)
			// Names of rules are in lower case: types that differ only in case are the same.
			if err := CheckType(t); err != nil {
				wrong(field, "%v", err)
			} else if first, ok := types[strings.ToLower(t)]; ok {
				wrong(field, "condition %s already belongs to source %s", t, first)
			} else {
				types[strings.ToLower(t)] = s.Name
			}
		}
		total += len(s.Conditions)
	}
	if total > MaxTotalConditions {
		errs.Add("sources", "%d conditions of all sources, at most %d", total, MaxTotalConditions)
	}
	return errs
}

// sourceName limits names so that they fit into a rule's name of at most 63 characters.
var sourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`) //nolint:gochecknoglobals // a constant

// pascalCase is the form that Kubernetes requires for condition types and reasons, as rules do.
var pascalCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,127}$`) //nolint:gochecknoglobals // a constant

// CheckType returns an error if a condition type is invalid.
func CheckType(t string) error {
	switch {
	case t == "":
		return errors.New("a condition has no type")
	case event.KubernetesCondition(t):
		return fmt.Errorf("condition %s is reserved for Kubernetes, like all that end in Pressure", t)
	case !pascalCase.MatchString(t):
		return fmt.Errorf("condition %.100q is not PascalCase (letters and digits, at most 128)", t)
	}
	return nil
}

// CheckName returns the name of the check that reports a source's condition.
func CheckName(source, conditionType string) string { return source + "/" + conditionType }

// EventsName returns the name of the check that reports a source's events.
func EventsName(source string, severity client.Severity) string {
	return source + "/" + string(severity)
}
