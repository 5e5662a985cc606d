package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"

	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/detector"
)

// fallbackReason stands in for the daemon's, which there always is.
const fallbackReason = "ReportedProblem"

// reportLayer makes rules of the daemons of the configuration. Those of a condition
// end with the word of the daemon, and with its silence: nobody vouches for the
// problem any more, and the condition is Unknown, not True.
func reportLayer(daemons []reportConfig) (fs.FS, error) {
	doc := newMadeRules()
	for _, d := range daemons {
		for _, c := range d.Conditions {
			doc.Conditions[c.Type] = madeHealthy{c.HealthyReason, c.HealthyMessage}
			// Names are letters, digits and dashes: nothing to escape.
			check := fmt.Sprintf("event.check == %q", ingest.CheckName(d.Name, c.Type))
			doc.Rules = append(doc.Rules, madeRule{
				Name: reportRuleName(d.Name, c.Type), Events: []string{"check"}, Condition: c.Type, Reason: fallbackReason,
				Message: "${event.message}", Severity: c.Severity,
				When: check + ` && event.status == "problem"`, ClearWhen: check + ` && event.status != "problem"`,
			})
		}
		for _, s := range []struct {
			of       client.Severity
			severity string
		}{{client.Info, "info"}, {client.Warn, "warning"}} {
			doc.Rules = append(doc.Rules, madeRule{
				Name: reportRuleName(d.Name, string(s.of)), Events: []string{"check"}, GroupBy: []string{"event.reason"}, Reason: fallbackReason,
				Message: "${event.message}", Severity: s.severity,
				When: fmt.Sprintf(`event.check == %q && event.status == "problem"`, ingest.EventsName(d.Name, s.of)),
			})
		}
	}
	return doc.layer("reports.yaml")
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
func (c *agentConfig) ownConditions(rules *detector.RuleSet) error {
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
