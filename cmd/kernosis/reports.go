package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// reportConfig is one problem daemon of the configuration file. See docs/reports.md.
type reportConfig struct {
	Name       string            `yaml:"name"`
	UID        []uint32          `yaml:"uid,flow,omitempty"`
	Pods       bool              `yaml:"pods,omitempty"`
	Heartbeat  time.Duration     `yaml:"heartbeat,omitempty"`
	Conditions []reportCondition `yaml:"conditions,omitempty"`
}

// reportCondition is a condition that a daemon may set, and what it says while
// nothing is wrong.
type reportCondition struct {
	Type           string `yaml:"type"`
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
	Severity       string `yaml:"severity,omitempty"`
}

// ingest returns who may report what.
func (c *agentConfig) ingest() ingest.Config {
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

func (c *agentConfig) checkReports() error {
	var errs []error
	in := c.ingest()
	for _, e := range in.Check() {
		errs = append(errs, c.origins.Errorf(strings.Replace(e.Field, "sources", "reports", 1), "%s", e.Msg))
	}
	for i, r := range c.Reports {
		for j, cond := range r.Conditions {
			field := fmt.Sprintf("reports[%d].conditions[%d]", i, j)
			if cond.HealthyReason == "" || cond.HealthyMessage == "" {
				errs = append(errs, c.origins.Errorf(field, "healthyReason and healthyMessage: what it says while nothing is wrong"))
			}
			switch cond.Severity {
			case "", "info", "warning", "critical":
			default:
				errs = append(errs, c.origins.Errorf(field, "severity %q is not info, warning or critical", cond.Severity))
			}
		}
	}
	if len(c.Reports) > 0 && c.ReportSocket == "" {
		errs = append(errs, c.origins.Errorf("reports", "there are daemons, but no report-socket for them"))
	}
	return errors.Join(errs...)
}

// reports is the problem report interface at work; one without an intake is off, one
// without a server hears nobody.
type reports struct {
	intake  *ingest.Intake
	server  *ingest.Server
	lacking error // why nobody can report
}

// openReports makes the socket where there are daemons to report.
func openReports(cfg agentConfig, a *agent, m *metrics.Metrics, log *slog.Logger) (*reports, error) {
	if len(cfg.Reports) == 0 {
		return &reports{}, nil
	}
	c := cfg.ingest()
	c.Log, c.Owner, c.Earlier = log, a.ruleOfCondition, a.earlier
	in, err := ingest.New(c)
	if err != nil {
		return nil, err
	}
	server, err := ingest.Listen(cfg.ReportSocket, in)
	if selfcheck.Unwritable(err) {
		// The conditions of the daemons become Unknown.
		return &reports{intake: in, lacking: err}, nil
	}
	if err != nil {
		return nil, err
	}
	m.Own.MustRegister(in.Metrics(), server.Metrics())
	log.Info("listening for problem daemons", "socket", cfg.ReportSocket, "daemons", len(c.Sources))
	return &reports{intake: in, server: server}, nil
}

func (r *reports) start(ctx context.Context, g *errgroup.Group, observe func(*event.Event)) {
	if r.intake != nil {
		g.Go(func() error { return r.intake.Run(ctx, observe) })
	}
	if r.server != nil {
		g.Go(func() error { return r.server.Serve(ctx) })
	}
}

// reportLasting has what the daemons have reported last reported once more, to emit.
func (r *reports) reportLasting(emit func(*event.Event)) {
	if r.intake != nil {
		r.intake.ReportLasting(emit)
	}
}

// Close removes the socket. It may be called again.
func (r *reports) Close() error {
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}

// ruleOfCondition names a rule in force that sets a condition.
func (a *agent) ruleOfCondition(conditionType string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.engine.Rules().Rules() {
		if r.Condition != "" && strings.EqualFold(r.Condition, conditionType) {
			return r.Name
		}
	}
	return ""
}
