package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
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

// Probe makes the probes of a target fail: a prober that acts like kubelet's, in a network namespace
// of its own, and a target in another, joined by a veth pair.
type Probe struct {
	Kind ProbeKind

	prober, target     *child
	proberNS, targetNS *namespace
	queue              targetReply
}

func probeAddr() netip.AddrPort { return netip.AddrPortFrom(targetPrefix().Addr(), 80) }

// Start sets up both ends, with a broken target, and returns the target. It does not probe yet.
func (p *Probe) Start(ctx context.Context) (t ProbeTarget, err error) {
	defer func() { ending(&err, "set up "+string(p.Kind), p.Close) }()
	if p.prober, err = startChild("prober", childOptions{newNet: true}); err != nil {
		return t, err
	}
	if p.target, err = startChild("probe-target", childOptions{newNet: true}); err != nil {
		return t, err
	}
	if p.proberNS, err = openNamespace(p.prober.pid(), "kn-prober", proberPrefix()); err != nil {
		return t, err
	}
	if p.targetNS, err = openNamespace(p.target.pid(), "kn-target", targetPrefix()); err != nil {
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
		return p.proberNS.ghost((*netlink.Handle).NeighAdd, probeAddr().Addr())
	case ProbeDeadNeighbour:
		return nil
	}
	if err := p.targetNS.addAddress(); err != nil {
		return err
	}
	if p.Kind == ProbeRefused {
		return nil
	}
	behave, ok := map[ProbeKind]string{
		ProbeReset: behaveReset, ProbeSilent: behaveSilent, ProbeSlow: behaveSlow,
		ProbeQueueFull: behaveIdle, ProbeNoRoute: behaveAnswer,
	}[p.Kind]
	if !ok {
		return fmt.Errorf("unknown kind of probe %q", p.Kind)
	}
	if err := p.listen(ctx, behave); err != nil || p.Kind != ProbeNoRoute {
		return err
	}
	return p.proberNS.subnetRoute((*netlink.Handle).RouteDel)
}

func (p *Probe) listen(ctx context.Context, behave string) (err error) {
	p.queue, err = ask[targetReply](ctx, p.target, targetRequest{Addr: probeAddr().String(), Behave: behave})
	return err
}

// Queue returns length and limit of the accept queue when it was filled; zero for other kinds.
func (p *Probe) Queue() (length, limit uint32) { return p.queue.Queued, p.queue.Max }

// Attempt probes once. A failed probe is not an error.
func (p *Probe) Attempt(ctx context.Context) (Attempt, error) {
	a, err := ask[Attempt](ctx, p.prober, "http://"+probeAddr().String()+"/healthz")
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
	var err error
	switch p.Kind {
	case ProbeNoRoute:
		return p.proberNS.subnetRoute((*netlink.Handle).RouteAdd)
	case ProbeDeadNeighbour:
		err = p.targetNS.addAddress()
	case ProbeTimeout:
		if err = p.targetNS.addAddress(); err == nil {
			err = p.proberNS.ghost((*netlink.Handle).NeighDel, probeAddr().Addr())
		}
	}
	if err != nil {
		return err
	}
	return p.listen(ctx, behaveAnswer)
}

// Close ends both processes; their namespaces and the veth pair go with them.
func (p *Probe) Close() error {
	p.prober.stop()
	p.target.stop()
	return errors.Join(p.proberNS.close(), p.targetNS.close())
}

// DefaultTargetsDir is the folder in which a running Kernosis looks for probe targets.
const DefaultTargetsDir = "/run/kernosis/targets.d"

// ProbeTarget is the target of a probe, with the facts that the detector needs.
type ProbeTarget struct {
	Addr        netip.AddrPort
	Netns       uint32 // inode of the prober's network namespace
	TargetNetns uint32 // inode of the target's
	ProberPID   int    // a process in the prober's namespace: the one that connects
	TargetPID   int    // a process in the target's namespace: the one that listens
}

// writeTarget writes the target's file into dir atomically, so that no reader sees half of
// it, and adds it to the record.
func writeTarget(r *record, dir, name string, t ProbeTarget) error {
	dir = cmp.Or(dir, DefaultTargetsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	path, err := filepath.Abs(filepath.Join(dir, "inject-"+strconv.Itoa(os.Getpid())+".yaml"))
	if err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	text := fmt.Sprintf("targets:\n- name: %s\n  address: %q\n  port: %d\n  netns: %d\n  targetNetns: %d\n  slowAfter: %s\n  slowOpeners: %s\n",
		"inject "+name, t.Addr.Addr().String(), t.Addr.Port(), t.Netns, t.TargetNetns, slowAfter, proberName)
	draft := path + ".tmp"
	for _, p := range []string{path, draft} {
		if err := r.will(step{Kind: stepFile, Path: p}); err != nil {
			return err
		}
	}
	if err = os.WriteFile(draft, []byte(text), 0o644); err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	return nil
}
