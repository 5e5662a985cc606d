package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
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

// healthCheck implements node-problem-detector's health-checker: its flags, messages and
// decisions.
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
			// Kubernetes before 1.28 has no /livez, which is no reason to kill kube-proxy.
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
