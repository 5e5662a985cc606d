package agent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// fallbackReason is used if an event has no reason; daemons' reports always have one.
const fallbackReason = "ReportedProblem"

// reportLayer makes rules for the configured daemons. The problem of a condition ends when the
// daemon reports so, and when the daemon falls silent: then nothing confirms the problem any more,
// and the condition becomes Unknown.
func reportLayer(daemons []reportConfig) (fs.FS, error) {
	file := detector.RuleFile{Conditions: map[string]detector.ConditionSpec{}}
	for _, d := range daemons {
		for _, c := range d.Conditions {
			file.Conditions[c.Type] = detector.ConditionSpec{HealthyReason: c.HealthyReason, HealthyMessage: c.HealthyMessage}
			// Names are letters, digits and dashes: nothing to escape.
			check := fmt.Sprintf("event.check == %q", ingest.CheckName(d.Name, c.Type))
			file.Rules = append(file.Rules, &detector.Rule{
				Name: reportRuleName(d.Name, c.Type), Events: []event.Kind{event.Check}, Condition: c.Type, Reason: fallbackReason,
				Message: "${event.message}", Severity: problem.Severity(c.Severity),
				When: check + ` && event.status == "problem"`, ClearWhen: check + ` && event.status != "problem"`,
			})
		}
		for _, s := range []struct {
			of       client.Severity
			severity problem.Severity
		}{{client.Info, problem.Info}, {client.Warn, problem.Warning}} {
			file.Rules = append(file.Rules, &detector.Rule{
				Name: reportRuleName(d.Name, string(s.of)), Events: []event.Kind{event.Check}, GroupBy: []string{"event.reason"}, Reason: fallbackReason,
				Message: "${event.message}", Severity: s.severity,
				When: fmt.Sprintf(`event.check == %q && event.status == "problem"`, ingest.EventsName(d.Name, s.of)),
			})
		}
	}
	return file.Layer("reports.yaml")
}

// reportRuleName returns the name of the rule for one condition, or for events of one severity, such
// as "report-gpu-monitor-gpuunhealthy". A name of more than 63 characters is cut and ends in a hash.
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

// ownConditions refuses rules that set a condition of a daemon.
func (c *Config) ownConditions(rules *detector.RuleSet) error {
	var errs []error
	for i, d := range c.Reports {
		for j, cond := range d.Conditions {
			if err := alreadySet(rules, cond.Type, reportRuleName(d.Name, cond.Type), ""); err != nil {
				errs = append(errs, c.origins.Errorf(fmt.Sprintf("reports[%d].conditions[%d]", i, j), "%w", err))
			}
		}
	}
	return errors.Join(errs...)
}
