package network

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func ReProbe(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "re-probe",
		Doc: "Repeats a probe of a pod of this node from the node's network namespace, like kubelet: no proxy, certificates not verified, redirects " +
			"followed on the same address only, SO_LINGER of 1 s. Reports the last phase reached and the duration of each. Resolves no name: pods are " +
			"probed by address. A failed probe is a result, not a failure of the operation. With podUID it probes only that pod; this fails if " +
			"the connection is not in its network namespace: a virtual machine, a proxy or a translated address.",
		Effect:     operation.Collect,
		TenantSafe: true,
		Parameters: probeParameters(),
		Results: results(
			operation.Result{Name: "succeeded", Doc: "true: kubelet would count it as a success"},
			operation.Result{Name: "phase", Doc: "last phase of the probe: connect, tls, request, answer or done"},
			operation.Result{Name: "error", Doc: "why it failed"},
			operation.Result{Name: "probed", Doc: "address and port"},
			operation.Result{Name: "status", Doc: "status of the answer: 200 OK, SERVING"},
			operation.Result{Name: "redirect", Doc: "external redirect target; kubelet counts it as a success"},
			operation.Result{Name: "connectTime", Doc: "time until the connection was established"},
			operation.Result{Name: "tlsTime", Doc: "duration of the TLS handshake"},
			operation.Result{Name: "firstByteTime", Doc: "time from the request to the first byte of the answer"},
			operation.Result{Name: "totalTime", Doc: "duration of the probe"},
		),
		Run: inspect(h, probeOf, func(ctx context.Context, call *operation.Call, p *probing,
			r *operation.Finding) (*operation.Verdict, error) {
			probed, err := probeOnce(ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return nil, err
			}
			probed.report(r, p)
			return nil, nil
		}),
	}
}

// probeParameters returns the parameters that specify where and how to probe.
func probeParameters(more ...operation.Parameter) []operation.Parameter {
	parameters := targetParameters(
		operation.Parameter{Name: "protocol", Doc: "probe protocol", Kind: operation.Enum, Values: []string{"tcp", "http", "https", "grpc"}, Default: "tcp"},
		operation.Parameter{Name: "path", Doc: "HTTP path with query", Kind: operation.String, Default: "/"},
		operation.Parameter{Name: "host", Doc: "HTTP Host header; none: address and port", Kind: operation.String},
		operation.Parameter{Name: "headers", Doc: "additional HTTP headers: Name: value|Name: value", Kind: operation.String},
		operation.Parameter{Name: "service", Doc: "service name for the gRPC health check", Kind: operation.String},
		operation.Parameter{Name: "timeout", Doc: "time limit of one probe", Kind: operation.Duration, Default: "1s", Max: int64(time.Minute)})
	for i := range parameters {
		if parameters[i].Name == "address" {
			parameters[i].Doc = "IP address of a pod of this node; none: first address of the given namespace"
		}
	}
	return slices.Concat(portRequired(parameters), more)
}

// probing is a probe and its target's namespace.
type probing struct {
	netprobe.Probe
	target *place
}

func (p *probing) String() string { return fmt.Sprintf("%s probe of %s", p.Protocol, p.To) }

// probeOf returns the probe that the parameters describe, and starts the report. It accepts only
// addresses of this node.
func probeOf(h operation.Host, v operation.Values) (*probing, *operation.Finding, error) {
	target, r, err := findOwnTarget(h, v)
	if err != nil {
		return nil, nil, err
	}
	from, err := findNode(h)
	if err != nil {
		return nil, nil, err
	}
	if target.pod != "" && target.inode == from.inode {
		return nil, nil, fmt.Errorf("pod %s uses the node's network: its addresses are the node's", display.Safe(target.pod, maxName))
	}
	if target.pod != "" && shared(h, target) {
		return nil, nil, fmt.Errorf("pod %s shares its network with processes outside of it: its addresses are theirs too", display.Safe(target.pod, maxName))
	}
	address := address(v, "address")
	if !address.IsValid() {
		if address, err = firstAddress(h, target); err != nil {
			return nil, nil, err
		}
	}
	if target.inode != from.inode && (address.IsLoopback() || address.IsUnspecified() || address.IsLinkLocalUnicast()) {
		return nil, nil, fmt.Errorf("%s can't be reached from the node's network namespace", address)
	}
	headers, err := headers(v["headers"])
	if err != nil {
		return nil, nil, err
	}
	path := v["path"]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if v["host"] != "" {
		headers.Set("Host", v["host"])
	}
	p := &probing{target: target, Probe: netprobe.Probe{
		From: func(connect func() error) error {
			entered := false
			err := netlook.Within(h.FS, from.inode, from.pid, func() error { entered = true; return connect() })
			if !entered && err != nil {
				return &unverified{fmt.Errorf("can't probe: %w", err)}
			}
			return err
		},
		To: netip.AddrPortFrom(address, uint16(v.Int("port"))), Protocol: v["protocol"],
		Path: path, Headers: headers, Service: v["service"],
	}}
	if target.pod != "" {
		p.Connected = func(to, local netip.AddrPort) error {
			if err := isTarget(h, target, to, local); err != nil {
				return &unverified{fmt.Errorf("%s: %w", notVerified, err)}
			}
			return nil
		}
	}
	return p, r, nil
}

// unverified is the error of a probe that was not made, or that may have reached a server other
// than the target's. It proves nothing about the target.
type unverified struct{ error }

const notVerified = "can't verify that the probe reached the pod"

// isTarget returns an error if the other end of a connection is not in the intended namespace.
// A user who can set addresses in a pod could give it an address that the node routes to another
// host, and must not be able to cause a probe of that host.
func isTarget(h operation.Host, target *place, to, local netip.AddrPort) error {
	view, err := open(h, target)
	if err != nil {
		return err
	}
	defer view.Close()
	const patience = 200 * time.Millisecond // the other end may be slower
	for end := time.Now().Add(patience); ; time.Sleep(patience / 20) {
		if found, err := view.Connection(to, local); err != nil || found != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server at %s is not in the network namespace of pod %s, or a proxy or translated address hides it", to, target.pod)
		}
	}
}

// firstAddress returns the address by which others reach a pod: on any device except lo, IPv4
// first.
func firstAddress(h operation.Host, p *place) (netip.Addr, error) {
	view, err := open(h, p)
	if err != nil {
		return netip.Addr{}, err
	}
	defer view.Close()
	list, err := netlook.Ask(view, func(h *netlink.Handle) ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of %s: %w", p, err)
	}
	var found netip.Addr
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		if ok && ip.IsGlobalUnicast() && (!found.IsValid() || ip.Is4() && !found.Is4()) {
			found = ip
		}
	}
	if !found.IsValid() {
		return found, fmt.Errorf("%s has no address", p)
	}
	return found, nil
}

// probeResult is the result of a probe.
type probeResult struct{ netprobe.Result }

// probeOnce probes with a timeout. It returns an error only if ctx is done.
func probeOnce(ctx context.Context, p *probing, timeout time.Duration) (*probeResult, error) {
	probe := p.Probe
	var verifying atomic.Bool // also if the probe times out meanwhile
	if verify := p.Connected; verify != nil {
		probe.Connected = func(to, local netip.AddrPort) error {
			verifying.Store(true)
			err := verify(to, local)
			verifying.Store(err != nil)
			return err
		}
	}
	r := &probeResult{probe.RunWithin(ctx, timeout)}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if r.Err != nil && verifying.Load() && r.unverified() == nil {
		r.Err = &unverified{fmt.Errorf("%s: %w", notVerified, r.Err)}
	}
	return r, nil
}

// unverified returns the probe's error if it proves nothing about the target; otherwise nil.
func (r *probeResult) unverified() error {
	if err, ok := errors.AsType[*unverified](r.Err); ok {
		return err
	}
	return nil
}

// report stores the results.
func (r *probeResult) report(to *operation.Finding, p *probing) {
	to.Bool("succeeded", r.Err == nil)
	to.Text("phase", r.Phase)
	to.Text("probed", p.To.String())
	to.Text("status", r.Status)
	to.Text("redirect", r.Redirect)
	if r.Err != nil {
		to.Text("error", r.Err.Error())
	}
	for name, d := range map[string]time.Duration{
		"connectTime": r.Connect, "tlsTime": r.TLS, "firstByteTime": r.FirstByte, "totalTime": r.Took,
	} {
		if d > 0 {
			to.Text(name, d.Round(time.Microsecond).String())
		}
	}
}

// String formats the result in one line.
func (r *probeResult) String() string {
	if r.Err != nil {
		return fmt.Sprintf("failed at %s after %s: %s", netprobe.PhaseText(r.Phase), r.Took.Round(time.Millisecond), display.Safe(r.Err.Error(), maxName*2))
	}
	if r.Status != "" {
		return fmt.Sprintf("%s in %s", display.Safe(r.Status, maxName), r.Took.Round(time.Microsecond))
	}
	return fmt.Sprintf("connected in %s", r.Took.Round(time.Microsecond))
}

// headers parses "Name: value|Name: value".
func headers(text string) (http.Header, error) {
	headers := http.Header{}
	for part := range strings.SplitSeq(text, "|") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("headers: %q: want Name: value", strings.TrimSpace(part))
		}
		headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return headers, nil
}
