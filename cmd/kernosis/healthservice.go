package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/journald"
)

// uptime returns how long ago systemd began to start the service. It does not use the time when the
// start was complete: a service that is killed while it starts never gets there, and would be killed
// again and again.
func (h *healthCheck) uptime(ctx context.Context) (time.Duration, error) {
	out, err := program(ctx, commandLimit, "systemctl", "show", h.service, "--property=InactiveExitTimestamp")
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(out, "=")
	if !ok {
		return 0, fmt.Errorf("systemctl show %s: no InactiveExitTimestamp in %.100q", h.service, out)
	}
	at, err := time.Parse("Mon 2006-01-02 15:04:05 MST", value)
	if err != nil {
		return 0, fmt.Errorf("systemctl show %s: %w", h.service, err)
	}
	return time.Since(at), nil
}

// kill tries to kill the service's main process; systemd restarts the service. It does not use
// "systemctl restart", so that the journal distinguishes this from an administrator's restart.
func (h *healthCheck) kill(ctx context.Context) {
	if h.component == componentDocker {
		// dockerd then writes its stacks to its log.
		if _, err := program(ctx, commandLimit, "pkill", "-SIGUSR1", "dockerd"); err != nil {
			h.note("failed to send SIGUSR1 to dockerd: %v", err)
		}
	}
	if _, err := program(ctx, commandLimit, "systemctl", "kill", "--kill-who=main", h.service); err != nil {
		h.note("failed to kill service %s: %v", h.service, err)
	}
}

// logsAreHealthy reports whether every pattern matches fewer lines than its count in the
// service's journal since its start, but at most over the loopback time.
func (h *healthCheck) logsAreHealthy(ctx context.Context) (bool, error) {
	since, err := h.uptime(ctx)
	if err != nil {
		return false, err
	}
	if h.loopback > 0 {
		since = min(since, h.loopback)
	}
	set, err := h.patterns.compile()
	if err != nil {
		return false, err
	}
	r, err := journald.New(journald.Config{
		Root: os.Getenv(agent.HostRootEnv), Directory: h.journalDir, Filter: journald.Filter{Units: []string{h.service}}, Lookback: max(since, 1),
	})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	matcher, hits, found := set.NewMatcher("journald"), &logpattern.Hits{}, make([]int, len(h.patterns))
	err = r.Once(ctx, func(item logs.Item) error {
		if item.Line == nil {
			return nil
		}
		for line := range bytes.SplitSeq(item.Line.Text, []byte("\n")) {
			if !matcher.Match(line, hits) {
				continue
			}
			for _, hit := range hits.Hits {
				found[hit.Pattern]++
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for i, p := range h.patterns {
		if found[i] >= p.count {
			h.note("%s failed log pattern check, %s occurrences: %d", h.service, p.expr, found[i])
			return false, nil
		}
	}
	return true, nil
}

// logPatterns is the flag --log-pattern.
type logPatterns []logPattern

// logPattern is an expression, and the number of matching lines from which a service is unhealthy.
type logPattern struct {
	count int
	expr  string
}

// String implements pflag.Value.
func (p *logPatterns) String() string {
	all := make([]string, 0, len(*p))
	for _, one := range *p {
		all = append(all, fmt.Sprintf("%d:%s", one.count, one.expr))
	}
	return strings.Join(all, ",")
}

// Set implements pflag.Value. Several patterns may be separated by commas; a comma that is not
// followed by a count is part of the pattern.
func (p *logPatterns) Set(value string) error {
	next := regexp.MustCompile(`,[0-9]+:`)
	for value != "" {
		item := value
		if at := next.FindStringIndex(value); at != nil {
			item, value = value[:at[0]], value[at[0]+1:]
		} else {
			value = ""
		}
		number, expr, ok := strings.Cut(item, ":")
		count, err := strconv.Atoi(number)
		if !ok || err != nil || count <= 0 || expr == "" {
			return fmt.Errorf("%.100q: want COUNT:REGEX", item)
		}
		*p = append(*p, logPattern{count: count, expr: expr})
	}
	_, err := p.compile()
	return err
}

// Type implements pflag.Value.
func (*logPatterns) Type() string { return "COUNT:REGEX" }

// compile compiles the patterns, which ignore case as node-problem-detector's do.
func (p *logPatterns) compile() (*logpattern.Set, error) {
	patterns := make([]logpattern.Pattern, 0, len(*p))
	for i, one := range *p {
		patterns = append(patterns, logpattern.Pattern{Name: fmt.Sprintf("--log-pattern %d", i+1), Expr: "(?i)" + one.expr})
	}
	return logpattern.Compile(patterns)
}
