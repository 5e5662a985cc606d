package inject

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// ProbeKind is a way for a probe to fail.
type ProbeKind string

// The ways a probe fails.
const (
	ProbeRefused       ProbeKind = "probe-refused"        // nobody listens
	ProbeTimeout       ProbeKind = "probe-timeout"        // SYNs vanish: a neighbour that isn't there
	ProbeReset         ProbeKind = "probe-reset"          // accepted, read, reset
	ProbeSilent        ProbeKind = "probe-silent"         // accepted, read, never answered
	ProbeSlow          ProbeKind = "probe-slow"           // accepted, read, an answer that never ends
	ProbeQueueFull     ProbeKind = "accept-queue-full"    // listening, never accepting, queue full
	ProbeNoRoute       ProbeKind = "probe-no-route"       // the prober has no route
	ProbeDeadNeighbour ProbeKind = "probe-dead-neighbour" // nobody answers ARP
)

// Expect returns the outcome that the prober gets for this kind.
func (k ProbeKind) Expect() Outcome {
	switch k {
	case ProbeRefused:
		return ConnRefused
	case ProbeReset:
		return ConnReset
	case ProbeSilent, ProbeSlow:
		return AnswerTimeout
	case ProbeNoRoute:
		return NoRoute
	}
	return ConnectTimeout
}

// Probe makes the probes of a target fail: a prober that acts like kubelet's, in
// a network namespace of its own, and a target in another, joined by a veth
// pair. Its fields are set before Start. Not safe for concurrent use.
type Probe struct {
	Kind ProbeKind

	prober, target     *child
	proberNS, targetNS *namespace
	queue              targetReply
}

// probeAddr returns the address to probe.
func probeAddr() netip.AddrPort { return netip.AddrPortFrom(targetPrefix().Addr(), 80) }

// Start sets up both ends, with a broken target, and returns the target. It does not probe yet.
func (p *Probe) Start(ctx context.Context) (t ProbeTarget, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up %s: %w", p.Kind, err), p.Close())
		}
	}()
	if p.prober, err = startChild("prober", childOptions{newNet: true}); err != nil {
		return t, err
	}
	if p.target, err = startChild("probe-target", childOptions{newNet: true}); err != nil {
		return t, err
	}
	if p.proberNS, err = openNamespace(p.prober.pid()); err != nil {
		return t, err
	}
	if p.targetNS, err = openNamespace(p.target.pid()); err != nil {
		return t, err
	}
	if err = connectNamespaces(ctx, p.proberNS, p.targetNS); err != nil {
		return t, err
	}
	if err = p.breakTarget(ctx); err != nil {
		return t, err
	}
	return ProbeTarget{
		Addr: probeAddr(), Netns: p.proberNS.inode, TargetNetns: p.targetNS.inode,
		ProberPID: p.prober.pid(), TargetPID: p.target.pid(),
	}, nil
}

func (p *Probe) breakTarget(ctx context.Context) error {
	switch p.Kind {
	case ProbeTimeout:
		return p.proberNS.ghost((*netlink.Handle).NeighAdd, proberLink, probeAddr().Addr())
	case ProbeDeadNeighbour:
		return nil
	}
	if err := p.targetNS.addAddress(targetLink, targetPrefix()); err != nil {
		return err
	}
	switch p.Kind {
	case ProbeRefused:
		return nil
	case ProbeReset:
		return p.listen(ctx, behaveReset)
	case ProbeSilent:
		return p.listen(ctx, behaveSilent)
	case ProbeSlow:
		return p.listen(ctx, behaveSlow)
	case ProbeQueueFull:
		return p.listen(ctx, behaveIdle)
	case ProbeNoRoute:
		if err := p.listen(ctx, behaveAnswer); err != nil {
			return err
		}
		return p.proberNS.subnetRoute((*netlink.Handle).RouteDel, proberLink, proberPrefix())
	}
	return fmt.Errorf("unknown kind of probe %q", p.Kind)
}

func (p *Probe) listen(ctx context.Context, behave string) (err error) {
	p.queue, err = ask[targetReply](ctx, p.target, targetRequest{Addr: probeAddr().String(), Behave: behave})
	return err
}

// Queue returns length and limit of the accept queue when it was filled; zero
// for other kinds.
func (p *Probe) Queue() (length, limit uint32) { return p.queue.Queued, p.queue.Max }

// Attempt probes once. A failed probe is not an error.
func (p *Probe) Attempt(ctx context.Context) (Attempt, error) {
	a, err := ask[Attempt](ctx, p.prober, proberRequest{URL: "http://" + probeAddr().String() + "/healthz"})
	if err != nil {
		return a, fmt.Errorf("probe %s: %w", probeAddr(), err)
	}
	return a, nil
}

// Heal repairs the target, so that it can be reached and answers. It returns once a probe
// has succeeded.
func (p *Probe) Heal(ctx context.Context) error {
	if err := p.mend(ctx); err != nil {
		return fmt.Errorf("heal %s: %w", p.Kind, err)
	}
	// The kernel retries a dead neighbour only after some time.
	const within = 10 * time.Second
	return waitFor(ctx, within, "successful probe", func() (bool, error) {
		a, err := p.Attempt(ctx)
		return a.Outcome == Answered, err
	})
}

func (p *Probe) mend(ctx context.Context) error {
	switch p.Kind {
	case ProbeTimeout, ProbeDeadNeighbour:
		if err := p.targetNS.addAddress(targetLink, targetPrefix()); err != nil {
			return err
		}
	case ProbeNoRoute:
		return p.proberNS.subnetRoute((*netlink.Handle).RouteAdd, proberLink, proberPrefix())
	}
	if p.Kind == ProbeTimeout {
		if err := p.proberNS.ghost((*netlink.Handle).NeighDel, proberLink, probeAddr().Addr()); err != nil {
			return err
		}
	}
	return p.listen(ctx, behaveAnswer)
}

// Close ends both processes; their namespaces and the veth pair go with them.
func (p *Probe) Close() error {
	p.prober.stop()
	p.target.stop()
	return errors.Join(p.proberNS.close(), p.targetNS.close())
}
