package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
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

	file string
	line int
	// lines of its keys, "conditions[1]" among them
	lines map[string]int
}

// reportCondition is a condition that a daemon may set, and what it says while
// nothing is wrong.
type reportCondition struct {
	Type           string `yaml:"type"`
	HealthyReason  string `yaml:"healthyReason"`
	HealthyMessage string `yaml:"healthyMessage"`
	Severity       string `yaml:"severity,omitempty"`
}

// placeReports notes where in the file the daemons stand.
func (c *config) placeReports(reports []reportConfig, path string, raw []byte) error {
	var doc struct {
		Reports []yaml.Node `yaml:"reports"`
	}
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	for i := range reports {
		r := &reports[i]
		r.file, r.lines = path, map[string]int{}
		if i >= len(doc.Reports) {
			continue
		}
		n := &doc.Reports[i]
		r.line = n.Line
		noteLines(n, "", r.lines)
		for k := 0; k+1 < len(n.Content); k += 2 {
			if n.Content[k].Value != "conditions" {
				continue
			}
			for j, item := range n.Content[k+1].Content {
				r.lines[fmt.Sprintf("conditions[%d]", j)] = item.Line
			}
		}
	}
	c.Reports = reports
	return nil
}

// reportError tells a mistake in a daemon, or with -1 in all of them, with its place.
func (c *config) reportError(i int, field string, err error) error {
	if i < 0 {
		return c.origins.errorf("reports", "%w", err)
	}
	r := &c.Reports[i]
	line, ok := r.lines[field]
	if !ok {
		line = r.line
	}
	return fmt.Errorf("%s:%d: reports[%d].%s: %w", r.file, line, i, field, err)
}

// ingest returns who may report what.
func (c *config) ingest() ingest.Config {
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

func (c *config) checkReports() error {
	var errs []error
	in := c.ingest()
	for _, err := range joined(in.Check()) {
		if e, ok := errors.AsType[*ingest.FieldError](err); ok {
			err = c.reportError(e.Source, e.Field, e.Err)
		}
		errs = append(errs, err)
	}
	for i, r := range c.Reports {
		for j, cond := range r.Conditions {
			field := fmt.Sprintf("conditions[%d]", j)
			if cond.HealthyReason == "" || cond.HealthyMessage == "" {
				errs = append(errs, c.reportError(i, field, errors.New("healthyReason and healthyMessage: what it says while nothing is wrong")))
			}
			switch cond.Severity {
			case "", "info", "warning", "critical":
			default:
				errs = append(errs, c.reportError(i, field, fmt.Errorf("severity %q is not info, warning or critical", cond.Severity)))
			}
		}
	}
	if len(c.Reports) > 0 && c.ReportSocket == "" {
		errs = append(errs, c.origins.errorf("reports", "there are daemons, but no report-socket for them"))
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
func openReports(cfg config, a *agent, m *metrics.Metrics, log *slog.Logger) (*reports, error) {
	if len(cfg.Reports) == 0 {
		return &reports{}, nil
	}
	c := cfg.ingest()
	c.Log, c.Owner = log, a.ruleOfCondition
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
	m.Reports(func() []metrics.ReportStats { return reportStats(in) }, server.RefusedConnections)
	log.Info("problem daemons may report", "socket", cfg.ReportSocket, "daemons", len(c.Sources))
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

// tellWarnings logs what is odd in the configuration.
func (c *config) tellWarnings(log *slog.Logger) {
	for _, w := range c.warnings {
		log.Warn("configuration", "warning", w)
	}
}

// reportStats is what the intake has counted, as metrics want it.
func reportStats(in *ingest.Intake) []metrics.ReportStats {
	var out []metrics.ReportStats
	for _, s := range in.Stats() {
		m := metrics.ReportStats{Source: s.Source, Events: s.Events, Changes: s.Changes, Expired: s.Expired, Warnings: s.Warnings, Reports: map[string]uint64{}}
		for o, n := range s.Reports {
			m.Reports[string(o)] = n
		}
		out = append(out, m)
	}
	return out
}
