package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/ingest/report"
	"github.com/kernosis/kernosis/detector"
)

// reportRule is a rule as a rule file has it.
type reportRule struct {
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

// fallbackReason stands in for the daemon's, which there always is.
const fallbackReason = "ReportedProblem"

// reportLayer makes rules of the daemons of the configuration. Those of a condition
// end with the word of the daemon, and with its silence: nobody vouches for the
// problem any more, and the condition is Unknown, not True.
func reportLayer(daemons []reportConfig) (fs.FS, error) {
	layer := fstest.MapFS{} // a map as a file system; it has nothing of a test
	if len(daemons) == 0 {
		return layer, nil
	}
	type healthy struct {
		HealthyReason  string `yaml:"healthyReason"`
		HealthyMessage string `yaml:"healthyMessage"`
	}
	doc := struct {
		APIVersion string             `yaml:"apiVersion"`
		Conditions map[string]healthy `yaml:"conditions,omitempty"`
		Rules      []reportRule       `yaml:"rules"`
	}{APIVersion: detector.APIVersion, Conditions: map[string]healthy{}}
	for _, d := range daemons {
		for _, c := range d.Conditions {
			doc.Conditions[c.Type] = healthy{c.HealthyReason, c.HealthyMessage}
			// Names are letters, digits and dashes: nothing to escape.
			check := fmt.Sprintf("event.check == %q", ingest.CheckName(d.Name, c.Type))
			doc.Rules = append(doc.Rules, reportRule{
				Name: reportRuleName(d.Name, c.Type), Events: []string{"check"}, Condition: c.Type, Reason: fallbackReason,
				Message: "${event.message}", Severity: c.Severity,
				When: check + ` && event.status == "problem"`, ClearWhen: check + ` && event.status != "problem"`,
			})
		}
		for _, s := range []struct {
			of       report.Severity
			severity string
		}{{report.Info, "info"}, {report.Warn, "warning"}} {
			doc.Rules = append(doc.Rules, reportRule{
				Name: reportRuleName(d.Name, string(s.of)), Events: []string{"check"}, GroupBy: []string{"event.reason"}, Reason: fallbackReason,
				Message: "${event.message}", Severity: s.severity,
				When: fmt.Sprintf(`event.check == %q && event.status == "problem"`, ingest.EventsName(d.Name, s.of)),
			})
		}
	}
	data, err := yaml.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("rules of problem daemons: %w", err)
	}
	layer["reports.yaml"] = &fstest.MapFile{Data: data, Mode: 0o444}
	return layer, nil
}

// reportRuleName is the name of the rule of one condition, or of events of one
// severity: "report-gpu-monitor-gpuunhealthy", at most 63 characters. What is cut
// away is in a number.
func reportRuleName(source, what string) string {
	const most = 63
	name := "report-" + source + "-" + strings.ToLower(what)
	if len(name) <= most {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return strings.TrimRight(name[:most-9], "-") + fmt.Sprintf("-%08x", h.Sum32())
}

// ownConditions refuses rules that set a condition which a daemon has: it is the
// daemon's alone, since whoever came second would make it True and never see why.
func (c *config) ownConditions(rules *detector.RuleSet) error {
	var errs []error
	for i, d := range c.Reports {
		for j, cond := range d.Conditions {
			own := reportRuleName(d.Name, cond.Type)
			all := rules.Rules()
			k := slices.IndexFunc(all, func(r *detector.Rule) bool { return strings.EqualFold(r.Condition, cond.Type) && r.Name != own })
			if k >= 0 {
				errs = append(errs, c.reportError(i, fmt.Sprintf("conditions[%d]", j),
					fmt.Errorf("condition %s is set by rule %s (%s:%d) already", cond.Type, all[k].Name, all[k].File, all[k].Line)))
			}
		}
	}
	return errors.Join(errs...)
}
