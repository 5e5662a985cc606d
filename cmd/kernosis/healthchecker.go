package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/journald"
)

// The components whose health can be checked.
const (
	componentKubelet   = "kubelet"
	componentDocker    = "docker"
	componentCRI       = "cri"
	componentKubeProxy = "kube-proxy"
)

// commandLimit bounds a systemd command, and the search in its journal.
const commandLimit = 10 * time.Second

// healthCheck implements node-problem-detector's health-checker: its flags, messages and decisions.
type healthCheck struct {
	component, service        string
	repair                    bool
	crictl, criSocket         string
	criLimit, limit           time.Duration
	cooldown, loopback        time.Duration
	patterns                  logPatterns
	notes                     io.Writer // receives notes, one line each
	hostAddress, kubeletPort  string
	kubeProxyPort, journalDir string
}

func newHealthChecker() *cobra.Command {
	var h healthCheck
	cmd := newCheckCommand("health-checker", "Check program: health of kubelet, kube-proxy or the container runtime",
		`Check the health of a component, as node-problem-detector's health-checker does.

Exit code 0: healthy; 1: unhealthy, with a message; 2: unknown. By default, as in
node-problem-detector, the service of an unhealthy component is killed, so that
systemd restarts it, if it has been up for longer than the cooldown time.`,
		"  kernosis health-checker --component cri --enable-repair=false",
		h.run)
	fs := cmd.Flags()
	fs.StringVar(&h.component, "component", componentKubelet, "`component` to check: kubelet, docker, kube-proxy or cri")
	completeFlag(cmd, "component", func() []string { return []string{componentKubelet, componentDocker, componentKubeProxy, componentCRI} })
	fs.StringVar(&h.service, "service", "", "systemd `service` of the component (default: the name of the component, containerd for cri)")
	fs.StringVar(&h.service, "systemd-service", "", "")
	fs.Lookup("systemd-service").Hidden = true
	fs.BoolVar(&h.repair, "enable-repair", true, "kill the service of an unhealthy component")
	fs.StringVar(&h.crictl, "crictl-path", "/usr/bin/crictl", "`path` of crictl, for component cri")
	fs.StringVar(&h.criSocket, "cri-socket-path", "unix:///var/run/containerd/containerd.sock", "`socket` of the runtime, for component cri")
	fs.DurationVar(&h.criLimit, "cri-timeout", 2*time.Second, "how long crictl waits for the runtime")
	fs.DurationVar(&h.cooldown, "cooldown-time", 2*time.Minute, "how long the service must have been up to be repaired")
	fs.DurationVar(&h.loopback, "loopback-time", 0, "how far back to look for log patterns; 0: to the start of the service")
	fs.DurationVar(&h.limit, "health-check-timeout", 10*time.Second, "how long the check may take")
	fs.Var(&h.patterns, "log-pattern", "COUNT:REGEX: unhealthy if COUNT or more lines of the service's journal match (repeatable)")
	fs.StringVar(&h.journalDir, "journal-dir", "", "`folder` of the journal's files (default: journald's)")
	return cmd
}

func (h *healthCheck) run(cmd *cobra.Command) error {
	h.notes = cmd.ErrOrStderr()
	h.hostAddress = cmp.Or(os.Getenv("HOST_ADDRESS"), "127.0.0.1")
	h.kubeletPort = cmp.Or(os.Getenv("KUBELET_PORT"), "10248")
	h.kubeProxyPort = cmp.Or(os.Getenv("KUBEPROXY_PORT"), "10256")
	if err := h.complete(); err != nil {
		return err
	}
	healthy, err := h.check(cmd.Context())
	if err != nil {
		return answer(cmd, checkUnknown, fmt.Sprintf("error checking %s health: %v", h.component, err))
	}
	if !healthy {
		return answer(cmd, checkProblem, fmt.Sprintf("%s:%s was found unhealthy; repair flag : %t", h.component, h.service, h.repair))
	}
	return nil
}

// complete sets the default service, and returns errors in the flags.
func (h *healthCheck) complete() error {
	if !slices.Contains([]string{componentKubelet, componentDocker, componentCRI, componentKubeProxy}, h.component) {
		return errors.New("the component specified is not supported. Supported components are: <kubelet/docker/cri/kube-proxy>")
	}
	if h.service == "" {
		if h.service = h.component; h.component == componentCRI {
			h.service = "containerd"
		}
	}
	for name, d := range map[string]time.Duration{
		"cri-timeout": h.criLimit, "cooldown-time": h.cooldown, "loopback-time": h.loopback, "health-check-timeout": h.limit,
	} {
		if d < 0 {
			return fmt.Errorf("--%s %v: want 0 or more", name, d)
		}
	}
	if h.limit == 0 {
		return errors.New("--health-check-timeout 0s: want more than 0, or nothing is healthy")
	}
	if h.component == componentCRI && h.crictl == "" {
		return errors.New("the crictl-path cannot be empty for cri component")
	}
	if h.component == componentCRI && h.criSocket == "" {
		return errors.New("the cri-socket-path cannot be empty for cri component")
	}
	return nil
}

// check reports whether the component is healthy, and repairs it if it is not and repair is set.
func (h *healthCheck) check(ctx context.Context) (healthy bool, err error) {
	healthy = h.probe(ctx)
	if healthy && len(h.patterns) > 0 {
		if healthy, err = h.logsAreHealthy(ctx); err != nil {
			return false, err
		}
	}
	if healthy || !h.repair {
		return healthy, nil
	}
	uptime, err := h.uptime(ctx)
	if err != nil {
		h.note("error in getting uptime for %s: %v", h.component, err)
		return false, nil // unhealthy, but without the uptime it can't be repaired
	}
	h.note("%s is unhealthy, component uptime: %v", h.component, uptime)
	if uptime > h.cooldown {
		h.note("%s cooldown period of %v exceeded, repairing", h.component, h.cooldown)
		h.kill(ctx)
	}
	return false, nil
}

func (h *healthCheck) probe(ctx context.Context) bool {
	switch h.component {
	case componentKubelet:
		status, err := h.get(ctx, h.kubeletPort, "/healthz")
		return h.isOK(status, err)
	case componentKubeProxy:
		status, err := h.get(ctx, h.kubeProxyPort, "/livez")
		if err == nil && status == http.StatusNotFound {
			// kube-proxy before 1.28 has no /livez; do not kill it for that.
			status, err = h.get(ctx, h.kubeProxyPort, "/healthz")
		}
		return h.isOK(status, err)
	case componentDocker:
		// Not crictl, so that docker's health does not depend on kubelet's shim.
		return h.succeeds(program(ctx, h.limit, "docker", "ps"))
	default:
		return h.succeeds(program(ctx, h.limit, h.crictl,
			"--timeout="+h.criLimit.String(), "--runtime-endpoint="+h.criSocket, "pods", "--latest"))
	}
}

// get requests an HTTP endpoint of this node. It uses no proxy, even if the environment names one.
func (h *healthCheck) get(ctx context.Context, port, path string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	url := "http://" + net.JoinHostPort(h.hostAddress, port) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	if err := resp.Body.Close(); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

func (h *healthCheck) isOK(status int, err error) bool {
	if err != nil {
		h.note("%s does not answer: %v", h.component, err)
	} else if status != http.StatusOK {
		h.note("%s answers with status %d", h.component, status)
	}
	return err == nil && status == http.StatusOK
}

func (h *healthCheck) succeeds(_ string, err error) bool {
	if err != nil {
		h.note("command failed: %v", err)
	}
	return err == nil
}

func (h *healthCheck) note(format string, args ...any) { fmt.Fprintf(h.notes, format+"\n", args...) }

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
