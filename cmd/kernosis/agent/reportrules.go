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

// fallbackReason stands in for the daemon's, which there always is.
const fallbackReason = "ReportedProblem"

// reportLayer makes rules of the daemons of the configuration. Those of a condition
// end with the word of the daemon, and with its silence: nobody vouches for the
// problem any more, and the condition is Unknown, not True.
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

// ownConditions refuses rules that set a condition which a daemon has.
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
