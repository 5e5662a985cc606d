package service

import (
	"cmp"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe"
)

// How a service is probed, besides the handlers of package probe.
const (
	DNS = "dns" // a question to a name server
	CRI = "cri" // the status of a container runtime
)

// Names of the known services.
const (
	Kubelet   = "kubelet"
	Runtime   = "runtime"
	KubeProxy = "kube-proxy"
	Resolver  = "dns"
	APIServer = "apiserver"
)

// Service is what is probed, how, and what its condition is called. The tags have its keys in
// the configuration file.
type Service struct {
	Name    string `yaml:"name"`
	Handler string `yaml:"handler,omitempty"` // of package probe, DNS or CRI

	// Address is host:port, of DNS host with or without a port, where the host of HTTP,
	// HTTPS and TCP may be a name; of DNS without one it is the node's name servers.
	Address string `yaml:"address,omitempty"`
	Path    string `yaml:"path,omitempty"` // of HTTP and HTTPS
	// Fallback is a path that is tried where there is no such one (404).
	Fallback string            `yaml:"-"`
	Headers  map[string]string `yaml:"headers,omitempty"` // of HTTP and HTTPS
	CA       string            `yaml:"ca,omitempty"`      // of HTTPS: a file; without it certificates are not verified
	// TLS of HTTPS stands in place of CA. Nobody but the API server has one.
	TLS     *tls.Config `yaml:"-"`
	Accept  []int       `yaml:"accept,omitempty,flow"`  // statuses of HTTP and HTTPS that count as a success, too
	Service string      `yaml:"service,omitempty"`      // of GRPC
	Command []string    `yaml:"command,omitempty,flow"` // of Exec: a program with its arguments
	Socket  string      `yaml:"socket,omitempty"`       // of CRI; empty: the one that is there
	Query   string      `yaml:"query,omitempty"`        // of DNS: the name asked for

	Period           time.Duration `yaml:"period,omitempty"`
	Timeout          time.Duration `yaml:"timeout,omitempty"`
	FailureThreshold int           `yaml:"failureThreshold,omitempty"`
	SuccessThreshold int           `yaml:"successThreshold,omitempty"`

	Condition      string `yaml:"condition,omitempty"`
	HealthyReason  string `yaml:"healthyReason,omitempty"`
	HealthyMessage string `yaml:"healthyMessage,omitempty"`
	Severity       string `yaml:"severity,omitempty"` // info, warning or critical
}

// Defaults of services. Three failures ten seconds apart are what kubelet's own probes
// take; a service that is slow to answer is not a dead one.
const (
	DefaultPeriod           = 10 * time.Second
	DefaultTimeout          = 3 * time.Second
	DefaultFailureThreshold = 3
	DefaultSuccessThreshold = 1
	defaultQuery            = "kubernetes.default.svc.cluster.local"
)

// Known returns the known services. Conditions, reasons and ports are those of
// node-problem-detector's health-checker, where it has them.
func Known() []Service {
	all := []Service{
		{
			Name: Kubelet, Handler: string(probe.HTTP), Address: "127.0.0.1:10248", Path: "/healthz",
			Condition: "KubeletUnhealthy", HealthyReason: "KubeletIsHealthy", HealthyMessage: "kubelet on the node is functioning properly", Severity: "critical",
		},
		{
			Name: Runtime, Handler: CRI, Condition: "ContainerRuntimeUnhealthy", HealthyReason: "ContainerRuntimeIsHealthy",
			HealthyMessage: "Container runtime on the node is functioning properly", Severity: "critical",
		},
		{
			Name: KubeProxy, Handler: string(probe.HTTP), Address: "127.0.0.1:10256", Path: "/livez", Fallback: "/healthz", // before Kubernetes 1.28
			Condition: "KubeProxyUnhealthy", HealthyReason: "KubeProxyIsHealthy", HealthyMessage: "kube-proxy on the node is functioning properly", Severity: "warning",
		},
		{
			Name: Resolver, Handler: DNS, Condition: "DNSUnreachable", HealthyReason: "DNSIsReachable",
			HealthyMessage: "a name server answers", Severity: "warning",
		},
		{
			Name: APIServer, Handler: string(probe.HTTPS), Path: "/livez",
			// It is alive if it says that it does not know who asks.
			Accept:    []int{401, 403},
			Condition: "APIServerUnreachable", HealthyReason: "APIServerIsReachable", HealthyMessage: "the API server answers", Severity: "warning",
		},
	}
	for i := range all {
		all[i].fill()
	}
	return all
}

// Filled returns the service with the defaults for what it doesn't say: those of the known
// service of its name, else general ones.
func (s Service) Filled() Service {
	if i := slices.IndexFunc(Known(), func(k Service) bool { return k.Name == s.Name }); i >= 0 {
		s.over(&Known()[i])
	}
	s.fill()
	return s
}

// over takes what it doesn't say from a known service. With a handler of its own it has
// nothing in common with how that is probed.
func (s *Service) over(k *Service) {
	s.Condition, s.HealthyReason = cmp.Or(s.Condition, k.Condition), cmp.Or(s.HealthyReason, k.HealthyReason)
	s.HealthyMessage, s.Severity = cmp.Or(s.HealthyMessage, k.HealthyMessage), cmp.Or(s.Severity, k.Severity)
	s.Period, s.Timeout = cmp.Or(s.Period, k.Period), cmp.Or(s.Timeout, k.Timeout)
	s.FailureThreshold, s.SuccessThreshold = cmp.Or(s.FailureThreshold, k.FailureThreshold), cmp.Or(s.SuccessThreshold, k.SuccessThreshold)
	if s.Handler != "" && s.Handler != k.Handler {
		return
	}
	if s.Path == "" {
		s.Path, s.Fallback = k.Path, k.Fallback
	}
	s.Handler, s.Address = k.Handler, cmp.Or(s.Address, k.Address)
	s.Query, s.Socket = cmp.Or(s.Query, k.Query), cmp.Or(s.Socket, k.Socket)
	if s.Accept == nil {
		s.Accept = k.Accept
	}
}

func (s *Service) fill() {
	s.Period, s.Timeout = cmp.Or(s.Period, DefaultPeriod), cmp.Or(s.Timeout, DefaultTimeout)
	s.FailureThreshold = cmp.Or(s.FailureThreshold, DefaultFailureThreshold)
	s.SuccessThreshold = cmp.Or(s.SuccessThreshold, DefaultSuccessThreshold)
	s.Severity = cmp.Or(s.Severity, "warning")
	switch s.Handler {
	case string(probe.HTTP), string(probe.HTTPS):
		s.Path = cmp.Or(s.Path, "/")
	case DNS:
		s.Query = cmp.Or(s.Query, defaultQuery)
	}
	if s.Condition != "" {
		s.HealthyReason = cmp.Or(s.HealthyReason, "No"+s.Condition)
		s.HealthyMessage = cmp.Or(s.HealthyMessage, "the probe of "+s.Name+" succeeds")
	}
}

// Endpoint says where the probe goes.
func (s *Service) Endpoint() string {
	const most = 200
	text := s.Address + s.Path
	switch s.Handler {
	case string(probe.Exec):
		text = strings.Join(s.Command, " ")
	case CRI:
		text = cmp.Or(s.Socket, "the runtime's socket")
	case DNS:
		text = s.Query + " at " + cmp.Or(s.Address, "the node's name servers")
	}
	return display.Safe(text, most)
}

// hostPort splits an address.
func hostPort(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err
}
