package collector

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

// facts is all that is known about a failed connection, from the kernel's record and a lookup.
type facts struct {
	dst         netip.AddrPort
	established bool // the handshake was complete
	noState     bool // connect() failed before the socket changed its state
	notSent     bool // no packet left the socket
	reset       bool // a reset was received
	peerClosed  bool
	errno       unix.Errno // of the socket
	errnoSoft   unix.Errno
	duration    time.Duration
	acked       uint64 // bytes of the request
	unacked     uint64
	received    uint64
	rtt         time.Duration // of the network; zero: unknown
	slowAfter   time.Duration // the limit that had passed when the opener closed; zero: none had
	dropReason  string        // why this node dropped a packet; empty: unknown or none
	dropAt      string        // function
	icmp        string        // what an ICMP error said; empty: unknown or none
	looked
}

const (
	// maxEvidence bounds the entries of each list, maxFact the bytes of an entry.
	maxEvidence = 8
	maxFact     = 160
	// neighborPatience is how long a next hop may be unresolved before it counts as dead: the
	// kernel asks three times, a second apart.
	neighborPatience = 500 * time.Millisecond
	// longRoundTrip: a round trip may be the cause if it takes more than 1/longRoundTrip of the
	// connection's time. Connecting takes one round trip, the answer another, and TLS two more.
	longRoundTrip = 10
)

// reasons is a bounded list of short texts.
type reasons []string

func (r *reasons) add(s string) {
	if s != "" && len(*r) < maxEvidence {
		*r = append(*r, display.Safe(s, maxFact))
	}
}

func (r *reasons) addf(format string, args ...any) { r.add(fmt.Sprintf(format, args...)) }

// judgement is the verdict, with the evidence for it and against others. Its slices are reused.
type judgement struct {
	verdict            string
	evidence, excluded reasons
}

// judge determines the verdict. It is pure: the result depends on f alone.
func (j *judgement) judge(f *facts) {
	j.evidence, j.excluded = j.evidence[:0], j.excluded[:0]
	switch {
	case f.noState:
		j.neverSent(f)
	case f.established:
		j.broken(f)
	case f.notSent:
		j.unsent(f)
	case f.reset:
		j.refused(f)
	default:
		j.unanswered(f)
	}
	if f.skipped {
		j.evidence.add("not examined: too many failures at once")
	}
}

// neverSent judges a connect() that failed before a port was chosen.
func (j *judgement) neverSent(f *facts) {
	j.verdict = event.VerdictNoRoute
	j.evidence.add("connect() ended before anything was sent")
	switch {
	case f.errno == unix.EADDRNOTAVAIL:
		j.verdict = event.VerdictPortsExhausted
		j.evidence.add("no free local port to this destination")
		j.excluded.add(f.route.String())
	case f.route.Known && f.route.Errno != 0:
		j.evidence.add(f.route.String())
	case f.route.Known:
		// There is a route: a BPF program of the cgroup or a security module blocks it.
		j.verdict = event.VerdictLocalDrop
		j.evidence.add("refused on this node, by a policy of the control group or a security module")
		j.excluded.add(f.route.String())
	case f.errno == unix.EPERM:
		j.verdict = event.VerdictLocalDrop
	case f.errno == 0:
		// In nearly all cases the cause is the route.
		j.evidence.add("the route could not be looked up: a policy of the control group may be the cause as well")
	}
	j.tracking(f)
}

// unsent judges a socket that was about to send but could not.
func (j *judgement) unsent(f *facts) {
	defer j.tracking(f)
	if f.route.Known && f.route.Errno != 0 {
		j.verdict = event.VerdictNoRoute
		j.evidence.add(f.route.String())
		return
	}
	j.verdict = event.VerdictPortsExhausted
	j.evidence.add("no free local port to this destination: nothing was sent")
	j.excluded.add(f.route.String())
}

func (j *judgement) refused(f *facts) {
	j.verdict = event.VerdictRefused
	j.evidence.add("a reset answered the SYN")
	switch {
	case f.dropReason != "":
		// A dropped packet never reached a socket: the reset came from a firewall.
		j.verdict = event.VerdictLocalDrop
		j.evidence.add(f.dropText())
		j.exclude(f)
	case f.listener.Present:
		j.evidence.addf("yet there is a listener: %s; it started since, or a firewall answered", f.listener.String())
	case f.listener.Known:
		j.evidence.addf("no listener on %s", f.dst)
		j.evidence.add(f.listening)
	}
}

// unanswered judges a SYN that was sent, with neither a SYN-ACK nor a reset in return.
func (j *judgement) unanswered(f *facts) {
	switch {
	case strings.HasPrefix(f.dropReason, "NEIGH_"), f.neighbor.Failed, f.neighbor.Trying && f.duration >= neighborPatience:
		j.verdict = event.VerdictNeighborFailed
		j.evidence.add(f.neighborText())
		j.evidence.add(f.dropText())
		j.evidence.add(f.icmp)
		j.evidence.add(f.route.String())
		return
	case f.icmp != "", isICMPErrno(f.errno), isICMPErrno(f.errnoSoft):
		j.verdict = event.VerdictUnreachable
		j.evidence.add(f.icmp)
		switch {
		case f.icmp != "":
		case isICMPErrno(f.errno):
			j.evidence.add("no reset, but an ICMP error: " + hostfs.ErrnoName(int32(f.errno)))
		default:
			// This ICMP error arrived while the socket was busy, as happens if this node answers.
			j.evidence.add("the socket received " + hostfs.ErrnoName(int32(f.errnoSoft)) + ", and kept trying")
		}
		j.evidence.add(f.dropText())
	case f.listener.Full(), f.dropReason == "TCP_LISTEN_OVERFLOW", f.listener.Present && f.overflows > 0:
		j.verdict = event.VerdictAcceptQueueFull
		if f.listener.Present {
			j.evidence.addf("accept queue of the listener: %d/%d", f.listener.Queue, f.listener.Max)
		}
		j.overflowed(f)
		j.evidence.add(f.dropText())
	case f.dropReason == "IP_OUTNOROUTES":
		j.verdict = event.VerdictNoRoute
		j.evidence.add(f.dropText())
	case f.dropReason != "":
		j.verdict = event.VerdictLocalDrop
		j.evidence.add(f.dropText())
	default:
		j.verdict = event.VerdictTimeout
		j.evidence.add("no answer to the SYN")
		if f.errno == 0 {
			j.evidence.addf("the opener gave up after %s", f.duration.Round(time.Millisecond))
		}
		if f.listener.Known && !f.listener.Present {
			j.evidence.addf("no listener on %s, and no reset either", f.dst)
		}
		if f.route.Known && f.route.Errno != 0 {
			j.evidence.add(f.route.String())
		}
	}
	j.tracking(f)
	j.exclude(f)
}

// tracking adds that connection tracking is full: packets that can't be tracked are dropped.
func (j *judgement) tracking(f *facts) {
	if f.conntrack.Full() {
		j.evidence.addf("connection tracking is full: %s", f.conntrack.String())
	}
}

func (j *judgement) overflowed(f *facts) {
	if f.overflows > 0 {
		j.evidence.addf("accept queues of the target's namespace overflowed %d times in %s", f.overflows, f.overIn.Round(100*time.Millisecond))
	}
}

// exclude lists checked causes that do not apply.
func (j *judgement) exclude(f *facts) {
	if f.listener.Present && j.verdict != event.VerdictAcceptQueueFull {
		j.excluded.add("listener present: " + f.listener.String())
	}
	if f.route.Known && f.route.Errno == 0 {
		j.excluded.add(f.route.String())
	}
	if f.neighbor.Known && !f.neighbor.Failed && !f.neighbor.Trying && f.neighbor.State != "none" {
		j.excluded.add(f.neighborText())
	}
}

// broken judges a connection that was established.
func (j *judgement) broken(f *facts) {
	switch {
	case f.reset, f.errno == unix.ECONNRESET, f.errno == unix.EPIPE:
		j.verdict = event.VerdictReset
		j.evidence.add("a reset ended the connection")
		j.traffic(f)
	case f.unacked > 0 && (f.listener.Full() || f.child == netlook.ChildHalfOpen && f.overflows > 0):
		// The queue filled up in the handshake: the listener ignores our last ACK and our data.
		j.verdict = event.VerdictAcceptQueueFull
		j.evidence.addf("accept queue of the listener: %d/%d", f.listener.Queue, f.listener.Max)
		j.overflowed(f)
		j.traffic(f)
	case f.child == netlook.ChildWaiting:
		j.verdict = event.VerdictNotAccepted
		j.evidence.add("the listener has not accepted the connection")
		if f.listener.Present {
			j.evidence.add("listener: " + f.listener.String())
		}
		j.traffic(f)
	default:
		j.verdict = event.VerdictSilent
		if f.slowAfter > 0 {
			j.verdict = event.VerdictSlow
			j.evidence.addf("the opener closed after %s, before the answer was complete; its limit is %s",
				f.duration.Round(time.Millisecond), f.slowAfter)
		}
		j.traffic(f)
		if f.peerClosed {
			j.evidence.add("the peer closed the connection")
		}
		if f.child == netlook.ChildAccepted {
			j.excluded.add("not accepted: a process has the connection")
		}
		if f.listener.Present {
			j.excluded.add("listener present: " + f.listener.String())
		}
	}
	if !f.reset {
		j.network(f)
	}
}

// network reports the round trip that the connection itself measured.
func (j *judgement) network(f *facts) {
	text := fmt.Sprintf("network RTT %.3g ms", float64(f.rtt)/float64(time.Millisecond))
	switch {
	case f.rtt <= 0:
	case f.rtt > f.duration/longRoundTrip:
		j.evidence.add(text)
	default:
		j.excluded.add(text)
	}
}

func (j *judgement) traffic(f *facts) {
	switch {
	case f.acked > 0 && f.unacked > 0:
		j.evidence.addf("%d bytes were acknowledged, %d were not", f.acked, f.unacked)
	case f.acked > 0:
		j.evidence.addf("the request was acknowledged: %d bytes", f.acked)
	case f.unacked > 0:
		j.evidence.addf("the request was not acknowledged: %d bytes", f.unacked)
	default:
		j.evidence.add("nothing was sent on it")
	}
	if f.received == 0 {
		j.evidence.add("no byte came back")
	} else {
		j.evidence.addf("%d bytes came back", f.received)
	}
}

func (f *facts) neighborText() string {
	switch {
	case !f.neighbor.Known:
		return ""
	case f.neighbor.Address == "":
		return fmt.Sprintf("neighbor %s: %s", f.route.Via, f.neighbor.State)
	}
	return fmt.Sprintf("neighbor %s: %s, %s", f.route.Via, f.neighbor.Address, f.neighbor.State)
}

func (f *facts) dropText() string {
	switch {
	case f.dropReason == "":
		return ""
	case f.dropAt == "":
		return "packet dropped on this node: " + f.dropReason
	}
	return "packet dropped on this node: " + f.dropReason + " at " + f.dropAt
}

// isICMPErrno reports whether the kernel produces this errno from an ICMP error (icmp_err_convert
// and icmpv6_err_convert). ECONNREFUSED without a reset is port unreachable.
func isICMPErrno(e unix.Errno) bool {
	switch e {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES:
		return true
	}
	return false
}

// icmpText describes the ICMP error that ended a handshake: as the socket received it or, with
// origin 0, as it was sent on this node.
func icmpText(origin, typ, code uint8) string {
	unreachable, names := uint8(3), []string{ // ICMPv4's destination unreachable, by code
		"net unreachable", "host unreachable", "protocol unreachable", "port unreachable",
		9: "net prohibited", 10: "host prohibited", 13: "administratively prohibited",
	}
	if origin == unix.SO_EE_ORIGIN_ICMP6 {
		unreachable, names = 1, []string{
			"no route", "administratively prohibited", "beyond scope", "address unreachable", "port unreachable",
			"source address failed policy", "route rejected",
		}
	}
	what := fmt.Sprintf("ICMP type %d code %d", typ, code)
	if typ == unreachable && int(code) < len(names) && names[code] != "" {
		what = "ICMP " + names[code]
	}
	if origin == 0 {
		return what + " was sent on this node"
	}
	return what + " came back"
}
