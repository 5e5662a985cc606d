package operation

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
)

// CheckAppSilent checks whether an application takes a probe's connection and says nothing.
func CheckAppSilent(h Host) Builtin {
	return Builtin{
		Name: "check-app-silent",
		Doc: "Probes as re-probe does, and while the probe waits for its answer looks at the application's end of that very " +
			"connection. The verdict is AppSilent where the application has accepted it and says nothing, AppNotAccepting " +
			"where it has not accepted it: the network has delivered what it had to.",
		Effect:     Check,
		Parameters: netProbeParameters(),
		Results: netResults(
			Result{"phase", "how far the probe got: connect, tls, request, answer or done"},
			Result{"accepted", "true: the application has accepted the connection"},
			Result{"unread", "bytes of the request that the application has not read"},
			Result{"received", "bytes of the request that came to the application's host"},
			Result{"ownerPID", "process that has the connection, or listens"},
			Result{"ownerComm", "name of that process"},
			Result{"ownerState", "its state: R, S, D, Z …"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, target, err := h.netProbeOf(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			s, err := h.netSilence(ctx, p, target, call.Parameters.Duration("timeout"))
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(target)
			return s.judge(r, p)
		},
	}
}

// netSilence is a probe that was looked at from its other end, unless it ended before.
type netSilence struct {
	probed netProbed // of one that has ended
	ended  bool
	waited time.Duration
	phase  string
	child  *netlook.Socket // the application's end; nil: not found
	queue  netlook.Listener
	owner  netOwner
	state  string
}

// netSilence probes, and looks at the connection's other end when the time-out is over.
func (h Host) netSilence(ctx context.Context, p *netprobe.Probe, target *netPlace, timeout time.Duration) (*netSilence, error) {
	probing, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var local netip.AddrPort
	whose := p.Connected
	p.Connected = func(to, at netip.AddrPort) error {
		mu.Lock()
		local = at
		mu.Unlock()
		if whose != nil {
			return whose(to, at)
		}
		return nil
	}
	// A TCP probe has nothing to wait for: it keeps its connection until it is looked at.
	p.Hold = timeout + netSearch
	s := &netSilence{waited: timeout}
	var progress netprobe.Progress
	var probed netprobe.Result
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		probed = p.Run(probing, &progress)
	}()
	defer func() { cancel(); <-done }()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-done:
		s.probed, s.ended, s.waited = netProbed{probed}, true, time.Since(began)
		return s, nil
	case <-t.C:
	}
	s.phase = progress.Phase()
	mu.Lock()
	remote := local
	mu.Unlock()
	if !remote.IsValid() {
		return s, nil
	}
	view, err := h.netOpen(target)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	inodes := map[uint32]bool{}
	if _, err := view.Sockets(netlook.AllStates, p.To.Port(), true, func(c *netlook.Socket) {
		switch {
		case c.State != netlook.Listen && c.Local == p.To && c.Remote == remote:
			kept := *c
			s.child = &kept
		case c.State == netlook.Listen && c.Takes(p.To):
			inodes[c.Inode] = true
		}
	}); err != nil {
		return nil, err
	}
	s.queue = view.Listener(p.To)
	if s.child != nil && s.child.Inode != 0 {
		inodes = map[uint32]bool{s.child.Inode: true}
	}
	owners, _ := h.netOwners(ctx, target, inodes, nil)
	for _, o := range owners {
		s.owner = o
	}
	if stat, err := h.FS.Stat(s.owner.pid); err == nil && s.owner.pid != 0 {
		s.state = string(stat.State)
	}
	return s, nil
}

// judge says what it means.
func (s *netSilence) judge(r *finding, p *netprobe.Probe) (Output, error) {
	what := fmt.Sprintf("%s probe of %s", p.Protocol, p.To)
	if s.ended {
		if s.probed.Err != nil && s.probed.Phase == netprobe.PhaseConnect {
			return Output{}, refutedBy("NotConnected", "%s %s", what, &s.probed)
		}
		if s.probed.Err != nil {
			return Output{}, refutedBy("AppAnswers", "%s: not silent, but it %s", what, &s.probed)
		}
		return Output{}, refutedBy("AppAnswers", "%s: %s", what, &s.probed)
	}
	r.text("phase", s.phase)
	if s.phase == netprobe.PhaseConnect {
		return Output{}, refutedBy("NotConnected", "%s: no connection within %s", what, s.waited)
	}
	c := s.child
	if c == nil {
		return Output{}, fmt.Errorf("%s waits since %s, but its other end is not in network namespace %s: its source address may be translated on the way",
			what, s.waited, r.results["targetNetNS"])
	}
	accepted := c.Inode != 0
	r.text("accepted", strconv.FormatBool(accepted))
	r.uint("unread", uint64(c.RQueue))
	r.uint("received", c.Info.Bytes_received)
	r.text("ownerComm", s.owner.comm)
	r.text("ownerState", s.state)
	if s.owner.pid != 0 {
		r.uint("ownerPID", uint64(s.owner.pid))
	}
	owner := s.owner.String()
	if s.state != "" {
		owner += " in state " + s.state
	}
	switch {
	case c.State == netlook.SynRecv:
		return Output{}, refutedBy("NotConnected", "%s: the listener ignores the end of the handshake, %s", what, &s.queue)
	case !accepted && c.State == netlook.Established:
		return r.output(verdictOf("AppNotAccepting", "%s waits since %s in the accept queue (%s), %d bytes of it are there; %s does not accept it",
			what, s.waited, &s.queue, c.RQueue, owner)), nil
	case p.Protocol == netprobe.TCP:
		return Output{}, refutedBy("AppAnswers", "%s was accepted by %s; a TCP probe asks for no more", what, owner)
	case c.Info.Bytes_received == 0 && c.RQueue == 0:
		return Output{}, refutedBy("RequestNotDelivered", "%s was accepted by %s, but nothing of the request has come in %s", what, owner, s.waited)
	case c.RQueue > 0:
		return r.output(verdictOf("AppSilent", "%s was accepted by %s, which has not read %d bytes of it in %s", what, owner, c.RQueue, s.waited)), nil
	}
	return r.output(verdictOf("AppSilent", "%s was accepted by %s, which has read all of it (%d bytes) and does not answer since %s (%s)",
		what, owner, c.Info.Bytes_received, s.waited, netprobe.PhaseText(s.phase))), nil
}
