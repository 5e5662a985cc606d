package network

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckAppSilent(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-app-silent",
		Doc: "Checks whether the application accepts and answers a probe. Probes like re-probe, and inspects the application's end of the same connection " +
			"while the probe waits. Verdicts, in both cases after the network has delivered everything: AppSilent if the application accepted the " +
			"connection and sends nothing, AppNotAccepting if it did not accept it.",
		Effect:     operation.Check,
		Parameters: probeParameters(),
		Results: results(
			operation.Result{Name: "phase", Doc: "last phase of the probe: connect, tls, request, answer or done"},
			operation.Result{Name: "accepted", Doc: "true: the application accepted the connection"},
			operation.Result{Name: "unread", Doc: "request bytes not read by the application"},
			operation.Result{Name: "received", Doc: "request bytes that reached the application's host"},
			operation.Result{Name: "ownerPID", Doc: "process with the connection, or the listener"},
			operation.Result{Name: "ownerComm", Doc: "its name"},
			operation.Result{Name: "ownerState", Doc: "its state: R, S, D, Z …"},
		),
		Run: inspect(h, probeOf, func(ctx context.Context, call *operation.Call, p *probing,
			r *operation.Finding) (*operation.Verdict, error) {
			s, err := watchSilence(h, ctx, p, call.Parameters.Duration("timeout"))
			if err != nil {
				return nil, err
			}
			return s.judge(r, p)
		}),
	}
}

// silence is a probe whose other end was inspected, unless the probe ended before.
type silence struct {
	probed probeResult // if ended
	ended  bool
	waited time.Duration
	phase  string
	child  *netlook.Socket // the application's end; nil: not found
	queue  netlook.Listener
	owner  owner
	state  string
}

// watchSilence probes, and inspects the other end of the connection at the timeout.
func watchSilence(h operation.Host, ctx context.Context, p *probing, timeout time.Duration) (*silence, error) {
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
	// A TCP probe waits for no answer: it keeps its connection open until it is inspected.
	p.Hold = timeout + search
	s := &silence{waited: timeout}
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
		s.probed, s.ended, s.waited = probeResult{probed}, true, time.Since(began)
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
	view, err := open(h, p.target)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if s.child, err = view.Connection(p.To, remote); err != nil {
		return nil, err
	}
	inodes := map[uint32]bool{}
	if s.child != nil && s.child.Inode != 0 {
		inodes[s.child.Inode] = true
	} else if _, err := view.Sockets(1<<netlook.Listen, p.To.Port(), false, func(l *netlook.Socket) {
		if l.Takes(p.To) {
			inodes[l.Inode] = true
		}
	}); err != nil {
		return nil, err
	}
	s.queue = view.Listener(p.To)
	owners, _ := owners(h, ctx, p.target, inodes, nil)
	for _, o := range owners {
		s.owner = o
	}
	if stat, err := h.FS.Stat(s.owner.pid); err == nil && s.owner.pid != 0 {
		s.state = string(stat.State)
	}
	return s, nil
}

// judge returns the verdict, or the error that refutes the check.
func (s *silence) judge(r *operation.Finding, p *probing) (*operation.Verdict, error) {
	what := p.String()
	if err := s.probed.unverified(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if s.ended {
		if s.probed.Err != nil && s.probed.Phase == netprobe.PhaseConnect {
			return nil, operation.RefutedBy("NotConnected", "%s %s", what, &s.probed)
		}
		if s.probed.Err != nil {
			return nil, operation.RefutedBy("AppAnswers", "%s: not silent, but it %s", what, &s.probed)
		}
		return nil, operation.RefutedBy("AppAnswers", "%s: %s", what, &s.probed)
	}
	r.Text("phase", s.phase)
	if s.phase == netprobe.PhaseConnect {
		return nil, operation.RefutedBy("NotConnected", "%s: no connection within %s", what, s.waited)
	}
	c := s.child
	if c == nil {
		return nil, fmt.Errorf("%s has waited for %s, but its other end is not in network namespace %s: its source address may be translated on the way",
			what, s.waited, r.Results["targetNetNS"])
	}
	accepted := c.Inode != 0
	r.Bool("accepted", accepted)
	r.Uint("unread", uint64(c.RQueue))
	r.Uint("received", c.Info.Bytes_received)
	s.owner.report(r)
	r.Text("ownerState", s.state)
	owner := s.owner.String()
	if s.state != "" {
		owner += " in state " + s.state
	}
	switch {
	case c.State == netlook.SynRecv:
		return nil, operation.RefutedBy("NotConnected", "%s: the listener ignores the end of the handshake, %s", what, &s.queue)
	case !accepted && c.State == netlook.Established:
		return operation.VerdictOf("AppNotAccepting", "%s has waited for %s in the accept queue (%s), %d bytes of it have arrived; %s does not accept it",
			what, s.waited, &s.queue, c.RQueue, owner), nil
	case p.Protocol == netprobe.TCP:
		return nil, operation.RefutedBy("AppAnswers", "%s was accepted by %s; a TCP probe requires no more", what, owner)
	case c.Info.Bytes_received == 0 && c.RQueue == 0:
		return nil, operation.RefutedBy("RequestNotDelivered", "%s was accepted by %s, but nothing of the request arrived within %s", what, owner, s.waited)
	case c.RQueue > 0:
		return operation.VerdictOf("AppSilent", "%s was accepted by %s, which has not read %d bytes of it in %s", what, owner, c.RQueue, s.waited), nil
	}
	return operation.VerdictOf("AppSilent", "%s was accepted by %s, which has read all of it (%d bytes) and has not answered for %s (%s)",
		what, owner, c.Info.Bytes_received, s.waited, netprobe.PhaseText(s.phase)), nil
}
