package pods

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kernosis/kernosis/collector/probe"
)

// maxText bounds the total length of one probe's texts: path, headers, service, command. A longer
// script belongs in a file.
const maxText = 16 << 10

// spec returns one probe with its defaults filled in.
func spec(p *corev1.Probe, c *corev1.Container, at FieldError) (*probe.Spec, error) {
	s := &probe.Spec{
		InitialDelay:     seconds(p.InitialDelaySeconds),
		Timeout:          cmp.Or(seconds(p.TimeoutSeconds), probe.DefaultTimeout),
		Period:           cmp.Or(seconds(p.PeriodSeconds), probe.DefaultPeriod),
		SuccessThreshold: cmp.Or(int(p.SuccessThreshold), probe.DefaultSuccessThreshold),
		FailureThreshold: cmp.Or(int(p.FailureThreshold), probe.DefaultFailureThreshold),
	}
	for _, n := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if n.value < 0 {
			return nil, at.wrong(n.field, "%d is less than 0", n.value)
		}
	}
	var err error
	handlers := 0
	if p.HTTPGet != nil {
		handlers, err = handlers+1, httpGet(s, p.HTTPGet, c, at)
	}
	if p.TCPSocket != nil && err == nil {
		s.Handler, s.Host = probe.TCP, p.TCPSocket.Host
		handlers++
		s.Port, err = port(p.TCPSocket.Port, c, "tcpSocket.port", at)
	}
	if p.GRPC != nil && err == nil {
		s.Handler = probe.GRPC
		handlers++
		if p.GRPC.Service != nil {
			s.Service = *p.GRPC.Service
		}
		s.Port, err = port(intstr.FromInt32(p.GRPC.Port), c, "grpc.port", at)
	}
	if p.Exec != nil && err == nil {
		s.Handler = probe.Exec
		handlers++
		if len(p.Exec.Command) == 0 {
			return nil, at.wrong("exec.command", "missing")
		}
		s.Command = slices.Clone(p.Exec.Command)
	}
	switch {
	case err != nil:
		return nil, err
	case handlers == 0:
		return nil, at.wrong("", "no httpGet, tcpSocket, grpc or exec")
	case handlers > 1:
		return nil, at.wrong("", "more than one of httpGet, tcpSocket, grpc and exec")
	}
	if n := size(s); n > maxText {
		return nil, at.wrong("", "%d bytes of text, at most %d are kept", n, maxText)
	}
	return s, nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func httpGet(s *probe.Spec, g *corev1.HTTPGetAction, c *corev1.Container, at FieldError) error {
	switch g.Scheme {
	case corev1.URISchemeHTTP, "":
		s.Handler = probe.HTTP
	case corev1.URISchemeHTTPS:
		s.Handler = probe.HTTPS
	default:
		return at.wrong("httpGet.scheme", "%s: want HTTP or HTTPS", quoted(string(g.Scheme)))
	}
	var err error
	if s.Port, err = port(g.Port, c, "httpGet.port", at); err != nil {
		return err
	}
	s.Host, s.Path = g.Host, path(g.Path)
	for _, h := range g.HTTPHeaders {
		if s.Headers == nil {
			s.Headers = http.Header{}
		}
		s.Headers.Add(h.Name, h.Value)
	}
	return nil
}

// path returns the path and query that kubelet requests, escaped. text may be a URL; if it can't
// be parsed as one, it is taken as a path.
func path(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		u = &url.URL{Path: text}
	}
	p := (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}).RequestURI()
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p
}

// port returns a port's number; p may be the name of one of the container's ports.
func port(p intstr.IntOrString, c *corev1.Container, field string, at FieldError) (uint16, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		n = -1
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				n = int(c.Ports[i].ContainerPort)
				break
			}
		}
		if n == -1 {
			var err error
			if n, err = strconv.Atoi(p.StrVal); err != nil {
				return 0, at.wrong(field, "the container has no port named %s", quoted(p.StrVal))
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, at.wrong(field, "%d is not a port", n)
	}
	return uint16(n), nil
}

func size(s *probe.Spec) int {
	n := len(s.Host) + len(s.Path) + len(s.Service)
	for name, values := range s.Headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	for _, arg := range s.Command {
		n += len(arg)
	}
	return n
}
