package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/cri"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/active"
	"github.com/kernosis/kernosis/collector/process"
)

// maker makes the probes of services. It is safe for concurrent use.
type maker struct {
	fs     hostfs.FS
	prober *active.Prober
}

// make makes one probe of a service. runs tracks the runs of its program. It returns an error if
// the probe could not be made.
func (m *maker) make(ctx context.Context, s *Service, group *process.Group, runs *process.Runs) (probe.Outcome, error) {
	switch s.Handler {
	case CRI:
		return m.runtime(ctx, s)
	case DNS:
		return m.names(ctx, s)
	case string(probe.Exec):
		return m.prober.Program(ctx, runs, process.Program{Path: s.Command[0], Args: s.Command[1:], Timeout: s.Timeout, Group: group})
	}
	host, port, err := hostPort(s.Address)
	if err != nil {
		return probe.Outcome{}, err
	}
	t := active.Target{Protocol: s.Handler, Host: host, Port: port, Path: s.Path, Service: s.Service, TLS: s.TLS, Headers: http.Header{}}
	for name, value := range s.Headers {
		t.Headers.Set(name, value)
	}
	if s.CA != "" {
		if t.TLS, err = verified(s.CA); err != nil {
			return probe.Outcome{}, err
		}
	}
	o, err := m.prober.Network(ctx, t, s.Timeout)
	if s.Fallback != "" && err == nil && o.Detail.Status == "404" {
		t.Path = s.Fallback
		o, err = m.prober.Network(ctx, t, s.Timeout)
	}
	if code, _ := strconv.Atoi(o.Detail.Status); err == nil && !o.OK && o.Detail.Verdict == event.VerdictStatus && slices.Contains(s.Accept, code) {
		o.OK, o.Detail = true, event.ProbeOutcome{Feed: event.ProbeActive, Duration: o.Detail.Duration}
	}
	return o, err
}

// verified returns a TLS configuration that trusts the certificates in a file. The file is read
// for each probe because it may change.
func verified(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca: no certificate in %s", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// runtime requests the container runtime's status.
func (m *maker) runtime(ctx context.Context, s *Service) (o probe.Outcome, err error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	try := func(socket cri.Socket) (err error) {
		o, err = m.runtimeAt(within, socket, s.Timeout)
		return err
	}
	if s.Socket != "" {
		err = try(cri.At(m.fs, s.Socket))
	} else {
		err = cri.Find(within, m.fs, try)
	}
	switch {
	case ctx.Err() != nil:
		return probe.Outcome{}, ctx.Err()
	case errors.Is(err, cri.ErrNotFound):
		return active.Failed(began, event.VerdictRefused, "connect", "no container runtime listens: none of %s exists", strings.Join(cri.Sockets(), ", ")), nil
	case err != nil && s.Socket == "":
		return probe.Outcome{}, errors.New("no container runtime speaks CRI v1: " + o.Detail.Cause)
	}
	return o, nil
}

// runtimeAt requests the status of the runtime at a socket. It returns an error, besides the
// outcome, if CRI v1 is Unimplemented there.
func (m *maker) runtimeAt(ctx context.Context, socket cri.Socket, timeout time.Duration) (probe.Outcome, error) {
	began := time.Now()
	o, stands := m.connects(ctx, socket)
	if !stands {
		return o, nil
	}
	h, err := cri.Ask(ctx, socket)
	said := status.Convert(err)
	code := said.Code()
	if code != codes.OK && ctx.Err() != nil {
		code = codes.DeadlineExceeded
	}
	switch code {
	case codes.OK:
	case codes.Unimplemented:
		return notReady(began, socket, said), said.Err()
	case codes.DeadlineExceeded:
		return active.Failed(began, event.VerdictSilent, "established", "the container runtime at %s accepts connections but does not answer within %s", socket.Name, timeout), nil
	default:
		return notReady(began, socket, said), nil
	}
	for _, c := range h.Conditions {
		if c.Name == criapi.RuntimeReady && !c.OK {
			o = active.Failed(began, event.VerdictStatus, "answer", "%s %s at %s: %s is false: %s", h.Name, h.Version, socket.Name, c.Name, strings.TrimPrefix(c.Reason+": "+c.Message, ": "))
			o.Detail.Status = c.Name + "=false"
			return o, nil
		}
	}
	return active.Succeeded(began), nil
}

// notReady returns the outcome for a runtime that answers with an error.
func notReady(began time.Time, socket cri.Socket, said *status.Status) probe.Outcome {
	o := active.Failed(began, event.VerdictStatus, "answer", "the container runtime at %s answers %s: %s", socket.Name, said.Code(), said.Message())
	o.Detail.Status = said.Code().String()
	return o
}

// connects reports whether a socket accepts connections. If not, the outcome says why.
func (m *maker) connects(ctx context.Context, socket cri.Socket) (probe.Outcome, bool) {
	began := time.Now()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket.Path)
	if err == nil {
		_ = c.Close() // nothing was sent
		return probe.Outcome{}, true
	}
	var o probe.Outcome
	switch {
	case errors.Is(err, unix.ENOENT):
		o = active.Failed(began, event.VerdictRefused, "connect", "nothing listens at %s: there is no such socket", socket.Name)
	case errors.Is(err, unix.ECONNREFUSED):
		o = active.Failed(began, event.VerdictRefused, "connect", "nothing listens at %s: the socket's process has ended", socket.Name)
	case errors.Is(err, unix.EAGAIN):
		o = active.Failed(began, event.VerdictAcceptQueueFull, "connect", "accept queue full at %s: its process does not call accept", socket.Name)
	default:
		o = active.Failed(began, event.VerdictOther, "connect", "no connection to %s: %v", socket.Name, err)
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		o.Detail.Errno = hostfs.ErrnoName(int32(errno))
	}
	return o, false
}

// maxResolvConf bounds the file that lists the node's name servers.
const maxResolvConf = 64 << 10

// names queries one name server after the other until one answers correctly. NXDOMAIN counts as
// an answer.
func (m *maker) names(ctx context.Context, s *Service) (probe.Outcome, error) {
	began := time.Now()
	given, err := s.server()
	if err != nil {
		return probe.Outcome{}, err
	}
	servers := []netip.AddrPort{given}
	if !given.IsValid() {
		b, err := m.fs.ReadFile(netprobe.ResolvConf, maxResolvConf)
		if err != nil {
			return probe.Outcome{}, fmt.Errorf("name servers of the node: %w", err)
		}
		servers = servers[:0]
		for _, a := range netprobe.NameServers(string(b)) {
			servers = append(servers, netip.AddrPortFrom(a, 53))
		}
	}
	name, err := netprobe.Name(s.Query, dnsmessage.TypeA)
	if err != nil {
		return probe.Outcome{}, err
	}
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = m.prober.InNode(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	q := dnsmessage.Question{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	share := s.Timeout / time.Duration(len(servers))
	var first probe.Outcome
	var reported []string
	for i, server := range servers {
		o := ask(ctx, dial, server, q, share)
		if ctx.Err() != nil {
			return probe.Outcome{}, ctx.Err()
		}
		if o.OK {
			return active.Succeeded(began), nil
		}
		if reported = append(reported, o.Detail.Cause); i == 0 {
			first = o
		}
	}
	first.At, first.Detail.Duration = time.Now(), event.Duration(time.Since(began))
	if len(reported) > 1 {
		first.Detail.Evidence = reported[1:]
	}
	return first, nil
}

// ask queries a name server once by UDP, and by TCP if the answer was truncated.
func ask(ctx context.Context, dial netprobe.Dial, server netip.AddrPort, q dnsmessage.Question, timeout time.Duration) probe.Outcome {
	began := time.Now()
	_, h, err := netprobe.Exchange(ctx, dial, "udp", server, q, timeout)
	if err == nil && h.Truncated {
		_, h, err = netprobe.Exchange(ctx, dial, "tcp", server, q, timeout)
	}
	switch late := net.Error(nil); {
	case errors.Is(err, unix.ECONNREFUSED):
		return active.Failed(began, event.VerdictRefused, "answer", "no name server listens at %s: port unreachable", server)
	case errors.As(err, &late) && late.Timeout():
		return active.Failed(began, event.VerdictNoAnswer, "answer", "name server %s does not answer within %s", server, timeout)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return active.Failed(began, event.VerdictNoRoute, "connect", "can't reach name server %s: %v", server, err)
	case err != nil:
		return active.Failed(began, event.VerdictOther, "answer", "name server %s: %v", server, err)
	case h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError:
		o := active.Failed(began, event.VerdictStatus, "answer", "name server %s answers %s to %s", server, netprobe.RCode(h.RCode), q.Name)
		o.Detail.Status = netprobe.RCode(h.RCode)
		return o
	}
	return active.Succeeded(began)
}

// Findable returns the names of the known services that [Find] looks for: services with the same
// address on each node. DNS and the API server must be configured explicitly, because they serve
// many nodes, each of which would query them.
func Findable() []string { return []string{Kubelet, Runtime, KubeProxy} }

// Find returns the known services among names that answer correctly now. It probes each of them
// once.
func Find(ctx context.Context, fs hostfs.FS, p *active.Prober, names []string) []Service {
	m := maker{fs: fs, prober: p}
	var found []Service
	for _, s := range Known() {
		if !slices.Contains(names, s.Name) {
			continue
		}
		if o, err := m.make(ctx, &s, nil, nil); err == nil && o.OK {
			found = append(found, s)
		}
	}
	return found
}
