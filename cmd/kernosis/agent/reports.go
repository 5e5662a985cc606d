package agent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// reportConfig is one problem daemon of the configuration file. See docs/reports.md.
type reportConfig struct {
	Name       string            `yaml:"name"`
	UID        []uint32          `yaml:"uid,flow,omitempty"`
	Pods       bool              `yaml:"pods,omitempty"`
	Heartbeat  time.Duration     `yaml:"heartbeat,omitempty"`
	Conditions []reportCondition `yaml:"conditions,omitempty"`
}

// reportCondition is a condition that a daemon may set, with its reason and message while
// nothing is wrong.
type reportCondition struct {
	Type           string `yaml:"type"`
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
	Severity       string `yaml:"severity,omitempty"`
}

// ingest returns the configuration of which daemon may report what.
func (c *Config) ingest() ingest.Config {
	out := ingest.Config{FS: hostfs.New(c.HostRoot)}
	for _, r := range c.Reports {
		s := ingest.Source{Name: r.Name, UIDs: r.UID, Pods: r.Pods, Heartbeat: r.Heartbeat}
		for _, cond := range r.Conditions {
			s.Conditions = append(s.Conditions, cond.Type)
		}
		out.Sources = append(out.Sources, s)
	}
	return out
}

func (c *Config) checkReports() error {
	var errs []error
	in := c.ingest()
	for _, e := range in.Check() {
		errs = append(errs, c.origins.Errorf(strings.Replace(e.Field, "sources", "reports", 1), "%s", e.Msg))
	}
	for i, r := range c.Reports {
		for j, cond := range r.Conditions {
			field := fmt.Sprintf("reports[%d].conditions[%d]", i, j)
			if cond.HealthyReason == "" || cond.HealthyMessage == "" {
				errs = append(errs, c.origins.Errorf(field, "healthyReason and healthyMessage are required: the condition has them while nothing is wrong"))
			}
			switch cond.Severity {
			case "", "info", "warning", "critical":
			default:
				errs = append(errs, c.origins.Errorf(field, "severity %q: want info, warning or critical", cond.Severity))
			}
		}
	}
	if len(c.Reports) > 0 && c.ReportSocket == "" {
		errs = append(errs, c.origins.Errorf("reports", "these daemons need a report-socket"))
	}
	return errors.Join(errs...)
}

// openReports opens the socket for problem daemons if any are configured.
func (p *parts) openReports() error {
	if len(p.cfg.Reports) == 0 {
		return nil
	}
	c := p.cfg.ingest()
	c.Log, c.Owner, c.Earlier = p.log, p.agent.ruleOfCondition, p.agent.earlier
	var err error
	if p.intake, err = ingest.New(c); err != nil {
		return output.Failed(err)
	}
	server, err := ingest.Listen(p.cfg.ReportSocket, p.intake)
	if selfcheck.Unwritable(err) {
		p.noReports = err // the conditions of the daemons become Unknown
		return nil
	}
	if err != nil {
		return output.Failed(err)
	}
	p.reports = server
	p.onClose(server.Close)
	p.metrics.Own.MustRegister(p.intake.Metrics(), server.Metrics())
	p.log.Info("listening for problem daemons", "socket", p.cfg.ReportSocket, "daemons", len(c.Sources))
	return nil
}

// ruleOfCondition returns the name of a rule in force that sets a condition, or "".
func (a *pipeline) ruleOfCondition(conditionType string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.engine.Rules().Rules() {
		if r.Condition != "" && strings.EqualFold(r.Condition, conditionType) {
			return r.Name
		}
	}
	return ""
}

// fallbackReason is used if an event has no reason; daemons' reports always have one.
const fallbackReason = "ReportedProblem"

// reportLayer makes rules for the configured daemons. The problem of a condition ends when the
// daemon reports its end. It also ends when the daemon stops reporting: nothing confirms the problem
// then, and the condition becomes Unknown.
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
