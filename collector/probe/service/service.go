package service

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/netprobe"
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

// over fills empty fields from a known service. If s has another handler, it omits the fields that
// define how to probe k.
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

// Bounds of services.
const (
	MaxServices = 32
	minPeriod   = time.Second
	// maxWait bounds the time until a failure counts: after a restart of the agent, an earlier
	// problem is given up after five minutes unless it is detected again.
	maxWait = 4 * time.Minute
)

// Check returns all mistakes in a service that has its defaults filled in, with the field of
// each. It does not check the name of the condition.
func (s *Service) Check() document.Errors {
	var errs document.Errors
	wrong := errs.Add
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`).MatchString(s.Name) {
		wrong("name", "%q: want lower-case letters, digits and dashes (at most 40 characters)", s.Name)
	}
	s.checkHandler(wrong)
	if s.Condition == "" {
		wrong("condition", "is missing: want the type of the node condition that reports the service")
	}
	if s.Period < minPeriod {
		wrong("period", "%v, want at least %v", s.Period, minPeriod)
	}
	if s.Timeout <= 0 || s.Timeout > s.Period {
		wrong("timeout", "%v, want more than 0 and at most the period %v", s.Timeout, s.Period)
	}
	for field, n := range map[string]int{"failureThreshold": s.FailureThreshold, "successThreshold": s.SuccessThreshold} {
		if n < 1 || n > 100 {
			wrong(field, "%d, want 1 to 100", n)
		} else if s.Period*time.Duration(n) > maxWait {
			wrong(field, "%d times the period %v is more than %v", n, s.Period, maxWait)
		}
	}
	if !slices.Contains([]string{"info", "warning", "critical"}, s.Severity) {
		wrong("severity", "%q: want one of info, warning, critical", s.Severity)
	}
	return errs
}

// checkHandler checks the fields of the handler, and that fields of other handlers are not set.
func (s *Service) checkHandler(wrong func(field, format string, args ...any)) {
	of := map[string][]string{
		string(probe.HTTP):  {"address", "path", "headers", "accept"},
		string(probe.HTTPS): {"address", "path", "headers", "ca", "accept"},
		string(probe.TCP):   {"address"},
		string(probe.GRPC):  {"address", "service"},
		string(probe.Exec):  {"command"},
		DNS:                 {"address", "query"},
		CRI:                 {"socket"},
	}
	own, ok := of[s.Handler]
	if !ok {
		wrong("handler", "%q: want one of %s", s.Handler, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
		return
	}
	for field, set := range map[string]bool{
		"address": s.Address != "", "path": s.Path != "", "headers": len(s.Headers) > 0, "ca": s.CA != "", "accept": len(s.Accept) > 0,
		"service": s.Service != "", "command": len(s.Command) > 0, "query": s.Query != "", "socket": s.Socket != "",
	} {
		if set && !slices.Contains(own, field) {
			wrong(field, "is not used by handler %s", s.Handler)
		}
	}
	switch s.Handler {
	case string(probe.Exec):
		if len(s.Command) == 0 || !path.IsAbs(s.Command[0]) {
			wrong("command", "want a program by its absolute path, and its arguments")
		}
	case CRI:
		if s.Socket != "" && !path.IsAbs(s.Socket) {
			wrong("socket", "%q: want an absolute path", s.Socket)
		}
	case DNS:
		if _, err := s.server(); err != nil {
			wrong("address", "%v", err)
		}
		if _, err := netprobe.Name(s.Query, dnsmessage.TypeA); err != nil {
			wrong("query", "%v", err)
		}
	default:
		s.checkAddress(wrong)
	}
}

func (s *Service) checkAddress(wrong func(field, format string, args ...any)) {
	switch host, port, err := hostPort(s.Address); {
	case s.Address == "":
		wrong("address", "is missing: want host:port")
	case err != nil:
		wrong("address", "%q: want host:port", s.Address)
	case host == "" || port == 0:
		wrong("address", "%q: want a host and a port above 0", s.Address)
	default:
		if _, err := netip.ParseAddr(host); err != nil && strings.ContainsAny(host, " /\\%@") {
			wrong("address", "%q is not a host", host)
		}
	}
	if u, err := url.Parse(s.Path); s.Path != "" && (err != nil || !strings.HasPrefix(s.Path, "/") || u.Host != "") {
		wrong("path", "%q: want a path that begins with /", s.Path)
	}
	for _, status := range s.Accept {
		if status < 400 || status > 599 {
			wrong("accept", "%d, want a status from 400 to 599: others already count as success", status)
		}
	}
}

// server returns the name server to query; the zero value means the node's.
func (s *Service) server() (netip.AddrPort, error) {
	if s.Address == "" {
		return netip.AddrPort{}, nil
	}
	host, port := s.Address, uint16(53)
	if h, text, err := net.SplitHostPort(s.Address); err == nil {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return netip.AddrPort{}, fmt.Errorf("%q: port %q", s.Address, text)
		}
		host, port = h, uint16(n)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, errors.New("want the IP address of a name server, with or without a port")
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}
