package operation

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
)

// ReProbe probes a pod again, as kubelet does.
func ReProbe(h Host) Builtin {
	return Builtin{
		Name: "re-probe",
		Doc: "Probes an address of a pod of this node again, from the node's network namespace and in kubelet's way: no proxy, " +
			"certificates not verified, redirects followed on the same address only, SO_LINGER of 1 s. It reports how far the probe got " +
			"and how long each phase took. There is no name to resolve: pods are probed by their address. A probe that " +
			"fails is a result, not a failure of the operation. With podUID it probes that pod alone; a pod in a virtual machine, whose " +
			"sockets are not in its network namespace, fails then.",
		Effect:     Collect,
		TenantSafe: true,
		Parameters: netProbeParameters(),
		Results: netResults(
			Result{"succeeded", "true: kubelet would count it as a success"},
			Result{"phase", "how far it got: connect, tls, request, answer or done"},
			Result{"error", "why it failed"},
			Result{"probed", "address and port"},
			Result{"status", "of the answer: 200 OK, SERVING"},
			Result{"redirect", "where else the answer points to; kubelet takes that for a success"},
			Result{"connectTime", "until the connection stood"},
			Result{"tlsTime", "of the TLS handshake"},
			Result{"firstByteTime", "from the request to the answer's first byte"},
			Result{"totalTime", "of the whole probe"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, target, err := h.netProbeOf(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			probed, err := netProbeOnce(ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(target)
			probed.report(r, p)
			return r.output(nil), nil
		},
	}
}

// netProbeParameters say where and how to probe.
func netProbeParameters(more ...Parameter) []Parameter {
	parameters := netTargetParameters(
		Parameter{Name: "protocol", Doc: "how to probe", Kind: Enum, Values: []string{"tcp", "http", "https", "grpc"}, Default: "tcp"},
		Parameter{Name: "path", Doc: "of HTTP, with a query", Kind: String, Default: "/"},
		Parameter{Name: "host", Doc: "Host header of HTTP; default: the address and port", Kind: String},
		Parameter{Name: "headers", Doc: "more headers of HTTP, as Name: value|Name: value", Kind: String},
		Parameter{Name: "service", Doc: "name that the gRPC health service is asked for", Kind: String},
		Parameter{Name: "timeout", Doc: "of one probe", Kind: Duration, Default: "1s", Max: int64(time.Minute)})
	for i := range parameters {
		if parameters[i].Name == "address" {
			parameters[i].Doc = "IP address to probe, of a pod of this node; default: the first of the namespace given"
		}
	}
	return slices.Concat(netPortRequired(parameters), more)
}

// netProbeOf makes the probe that the parameters describe, and returns the namespace that
// it goes to. It goes to an address of this node only.
func (h Host) netProbeOf(v Values) (*netprobe.Probe, *netPlace, error) {
	target, err := h.netTarget(v, true)
	if err != nil {
		return nil, nil, err
	}
	from, err := h.netNode()
	if err != nil {
		return nil, nil, err
	}
	if target.pod != "" && target.inode == from.inode {
		return nil, nil, fmt.Errorf("pod %s uses the node's network: its addresses are the node's", display.Safe(target.pod, netMaxName))
	}
	if target.pod != "" && h.netShared(&target) {
		return nil, nil, fmt.Errorf("pod %s shares its network with processes outside of it: its addresses are theirs too", display.Safe(target.pod, netMaxName))
	}
	address := netAddress(v, "address")
	if !address.IsValid() {
		if address, err = h.netFirstAddress(&target); err != nil {
			return nil, nil, err
		}
	}
	if target.inode != from.inode && (address.IsLoopback() || address.IsUnspecified() || address.IsLinkLocalUnicast()) {
		return nil, nil, fmt.Errorf("%s can't be reached from the node's network namespace", address)
	}
	headers, err := netHeaders(v["headers"])
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
	p := &netprobe.Probe{
		From: h.netFrom(from), To: netip.AddrPortFrom(address, uint16(v.Int("port"))), Protocol: v["protocol"],
		Path: path, Headers: headers, Service: v["service"],
	}
	if target.pod != "" {
		p.Connected = func(to, local netip.AddrPort) error { return h.netIsTarget(&target, to, local) }
	}
	return p, &target, nil
}

// netIsTarget is an error where the other end of a connection is not in the namespace
// that it was meant for. Who may set addresses in a pod can give it one that the node
// finds elsewhere, and must not have that probed.
func (h Host) netIsTarget(target *netPlace, to, local netip.AddrPort) error {
	view, err := h.netOpen(target)
	if err != nil {
		return err
	}
	defer view.Close()
	const patience = 200 * time.Millisecond // the other end may be the slower one
	for end := time.Now().Add(patience); ; time.Sleep(patience / 20) {
		found := false
		if _, err := view.Sockets(netlook.AllStates, to.Port(), false, func(s *netlook.Socket) {
			found = found || s.State != netlook.Listen && s.Local == to && s.Remote == local
		}); err != nil {
			return err
		}
		if found {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("who answers at %s is not in the network namespace of pod %s", to, target.pod)
		}
	}
}

// netFirstAddress is the address of a pod that others use: of a device but lo, IPv4 first.
func (h Host) netFirstAddress(p *netPlace) (netip.Addr, error) {
	view, err := h.netOpen(p)
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
