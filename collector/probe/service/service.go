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

// Handlers besides those of package probe.
const (
	DNS = "dns" // a query to a name server
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

// Service defines a probe of a service and its condition. The tags are its keys in the
// configuration file.
type Service struct {
	Name    string `yaml:"name"`
	Handler string `yaml:"handler,omitempty"` // a handler of package probe, DNS or CRI

	// Address is host:port. For HTTP, HTTPS and TCP the host may be a name. For DNS the port is
	// optional; without an address, DNS queries the node's name servers.
	Address string `yaml:"address,omitempty"`
	Path    string `yaml:"path,omitempty"` // for HTTP and HTTPS
	// Fallback is a path that is tried if Path does not exist (404).
	Fallback string            `yaml:"-"`
	Headers  map[string]string `yaml:"headers,omitempty"` // for HTTP and HTTPS
	CA       string            `yaml:"ca,omitempty"`      // for HTTPS: a file; without it certificates are not verified
	// TLS, for HTTPS, replaces CA. Only the API server has one.
	TLS     *tls.Config `yaml:"-"`
	Accept  []int       `yaml:"accept,omitempty,flow"`  // statuses of HTTP and HTTPS that also count as a success
	Service string      `yaml:"service,omitempty"`      // for GRPC
	Command []string    `yaml:"command,omitempty,flow"` // for Exec: a program with its arguments
	Socket  string      `yaml:"socket,omitempty"`       // for CRI; empty: detected
	Query   string      `yaml:"query,omitempty"`        // for DNS: the name to resolve

	Period           time.Duration `yaml:"period,omitempty"`
	Timeout          time.Duration `yaml:"timeout,omitempty"`
	FailureThreshold int           `yaml:"failureThreshold,omitempty"`
	SuccessThreshold int           `yaml:"successThreshold,omitempty"`

	Condition      string `yaml:"condition,omitempty"`
	HealthyReason  string `yaml:"healthyReason,omitempty"`
	HealthyMessage string `yaml:"healthyMessage,omitempty"`
	Severity       string `yaml:"severity,omitempty"` // info, warning or critical
}

// Defaults of services; the others are those of kubelet's probes. The timeout is longer, because a
// service that is slow to answer is not dead.
const (
	defaultTimeout = 3 * time.Second
	defaultQuery   = "kubernetes.default.svc.cluster.local"
)

// Known returns the known services. Conditions, reasons and ports are the same as in
// node-problem-detector's health-checker, if it has them.
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
			// It is alive even if it answers that the client is not authenticated or authorised.
			Accept:    []int{401, 403},
			Condition: "APIServerUnreachable", HealthyReason: "APIServerIsReachable", HealthyMessage: "the API server answers", Severity: "warning",
		},
	}
	for i := range all {
		all[i].fill()
	}
	return all
}

// Filled returns the service with defaults for empty fields: from the known service of the same
// name, else general ones.
func (s Service) Filled() Service {
	if i := slices.IndexFunc(Known(), func(k Service) bool { return k.Name == s.Name }); i >= 0 {
		s.over(&Known()[i])
	}
	s.fill()
	return s
}

// over fills empty fields from a known service. If s has another handler, it takes no fields that
// say how to probe k.
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
	s.Period, s.Timeout = cmp.Or(s.Period, probe.DefaultPeriod), cmp.Or(s.Timeout, defaultTimeout)
	s.FailureThreshold = cmp.Or(s.FailureThreshold, probe.DefaultFailureThreshold)
	s.SuccessThreshold = cmp.Or(s.SuccessThreshold, probe.DefaultSuccessThreshold)
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

// Endpoint returns where the probe goes.
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

// hostPort splits an address into host and port.
func hostPort(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err
}
