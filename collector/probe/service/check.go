package service

import (
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

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/collector/probe"
)

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
