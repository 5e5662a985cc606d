package active

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
)

const (
	// Bounds in bytes: maxCause of a cause, maxFact of one entry of evidence, maxSaid of the
	// peer's answer.
	maxCause = 300
	maxFact  = 160
	maxSaid  = 256
	// neighborPatience is how long a next hop may be unresolved before it counts as dead: the
	// kernel asks three times, a second apart.
	neighborPatience = 500 * time.Millisecond
)

// facts is all that is known of a failed network probe.
type facts struct {
	netprobe.Result
	protocol string
	to       netip.AddrPort
	timeout  time.Duration
	seen
}

// late reports whether the probe timed out.
func (f *facts) late() bool {
	_, ok := errors.AsType[*netprobe.TimeoutError](f.Err)
	return ok || errors.Is(f.Err, unix.ETIMEDOUT)
}

// errIs reports whether the probe's error or its connection's, which gRPC hides, is one of all.
func (f *facts) errIs(all ...error) bool {
	for _, e := range all {
		if errors.Is(f.Err, e) || errors.Is(f.Conn.Err, e) {
			return true
		}
	}
	return false
}

// open reports whether the error alone leaves the cause open, so that an inspection may help.
func (f *facts) open() bool {
	return f.Phase == netprobe.PhaseConnect || f.late() && f.Conn.Received == 0
}

// judge fills in the verdict. It is pure: the verdict depends on f alone.
func (f *facts) judge(d *event.ProbeOutcome) {
	switch {
	case f.Phase == netprobe.PhaseConnect:
		f.judgeConnect(d)
	case f.errIs(unix.ECONNRESET, unix.EPIPE):
		set(d, event.VerdictReset, "the connection to %s was reset during the %s, %s after it was established; %s",
			f.to, f.part(), display.Duration(f.Took-f.Connect), f.traffic())
	case f.late():
		f.judgeLate(d)
	case f.Phase == netprobe.PhaseTLS:
		set(d, event.VerdictTLS, "TLS handshake with %s failed: %s", f.to, f.tlsText())
	case f.Status != "":
		set(d, event.VerdictStatus, "%s", f.statusText())
	case errors.Is(f.Err, netprobe.ErrNoHealth), errors.Is(f.Err, netprobe.ErrRedirects):
		set(d, event.VerdictStatus, "%s: %v", f.to, f.Err)
	case f.Conn.Received == 0:
		set(d, event.VerdictSilent, "%s accepted the connection and closed it without sending a byte, %s after it was established",
			f.to, display.Duration(f.Took-f.Connect))
	case f.errIs(io.EOF, io.ErrUnexpectedEOF):
		set(d, event.VerdictStatus, "%s closed the connection in the middle of its answer, after %d bytes",
			f.to, f.Conn.Received)
	default:
		set(d, event.VerdictStatus, "%s gave no %s answer: %s",
			f.to, strings.ToUpper(f.protocol), status.Convert(f.Err).Message())
	}
	f.exclude(d)
	if f.skipped {
		add(&d.Evidence, "not examined: too many failures at once")
	}
	if f.listener.Present {
		d.QueueLen, d.QueueMax = f.listener.Queue, f.listener.Max
	}
	d.Cause = display.Safe(d.Cause, maxCause)
}

// set sets a verdict and its cause.
func set(d *event.ProbeOutcome, verdict, format string, args ...any) {
	d.Verdict, d.Cause = verdict, fmt.Sprintf(format, args...)
}

// judgeConnect fills in the verdict of a probe that got no connection.
func (f *facts) judgeConnect(d *event.ProbeOutcome) {
	switch {
	case f.errIs(unix.EADDRNOTAVAIL):
		set(d, event.VerdictPortsExhausted, "no local port is free to connect to %s: nothing was sent", f.to)
	case f.errIs(unix.ECONNREFUSED):
		set(d, event.VerdictRefused, "nothing listens at %s: the SYN was refused after %s",
			f.to, display.Duration(f.Took))
		if f.listener.Present {
			d.Cause = fmt.Sprintf("%s refused the SYN after %s, yet there is a listener: it started since, or a firewall answered", f.to, display.Duration(f.Took))
		} else if f.listener.Known {
			add(&d.Evidence, "no listener at "+f.to.String())
		}
	case f.route.Known && f.route.Errno != 0:
		set(d, event.VerdictNoRoute, "can't reach %s: %s", f.to, f.route.String())
	case f.errIs(unix.ENETUNREACH, unix.EINVAL):
		set(d, event.VerdictNoRoute, "can't reach %s: %s", f.to, d.Errno)
	case f.errIs(unix.EPERM, unix.EACCES):
		set(d, event.VerdictLocalDrop, "this node blocks packets to %s: %s", f.to, d.Errno)
	case f.neighbor.Failed, f.neighbor.Trying && f.Took >= neighborPatience:
		set(d, event.VerdictNeighborFailed, "the next hop %s to %s does not answer: neighbour %s",
			f.route.Via, f.to, f.neighbor.State)
		add(&d.Evidence, f.route.String())
	case f.errIs(unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENOPROTOOPT, unix.EPROTO, unix.EOPNOTSUPP, unix.ENONET):
		set(d, event.VerdictUnreachable, "an ICMP error answered the SYN to %s: %s", f.to, d.Errno)
	case !f.late():
		set(d, event.VerdictOther, "no connection to %s: %v", f.to, f.Err)
	case f.listener.Full():
		set(d, event.VerdictAcceptQueueFull, "accept queue full %d/%d on :%d: its process does not call accept; no answer to the SYN in %s",
			f.listener.Queue, f.listener.Max, f.to.Port(), display.Duration(f.Took))
	default:
		set(d, event.VerdictTimeout, "no answer to the SYN to %s in %s", f.to, display.Duration(f.Took))
		if f.listener.Known && !f.listener.Present {
			add(&d.Evidence, fmt.Sprintf("no listener at %s, and no reset either", f.to))
		}
	}
}

// judgeLate fills in the verdict of a probe that connected and then timed out.
func (f *facts) judgeLate(d *event.ProbeOutcome) {
	stood := fmt.Sprintf("SYN answered in %s", display.Duration(f.Connect))
	switch {
	case f.Conn.Received == 0 && f.child == netlook.ChildWaiting:
		set(d, event.VerdictNotAccepted, "%s, but the connection waits in the accept queue (%d/%d) of :%d and was not accepted in %s",
			stood, f.listener.Queue, f.listener.Max, f.to.Port(), display.Duration(f.Took))
	case f.Conn.Received == 0 && f.Conn.Acked < f.Conn.Sent && f.listener.Full():
		set(d, event.VerdictAcceptQueueFull, "accept queue full %d/%d on :%d: the end of the handshake and the request are ignored",
			f.listener.Queue, f.listener.Max, f.to.Port())
	case f.Conn.Received == 0:
		set(d, event.VerdictSilent, "%s, %s, no byte back in %s", stood, f.traffic(), display.Duration(f.timeout))
		if f.child == netlook.ChildAccepted {
			add(&d.Excluded, "not accepted: a process has the connection")
		}
	case f.Phase == netprobe.PhaseTLS:
		set(d, event.VerdictTLS, "%s, but the TLS handshake did not end in %s: %d bytes received",
			stood, display.Duration(f.timeout), f.Conn.Received)
	case f.FirstByte == 0 && f.protocol != netprobe.GRPC:
		set(d, event.VerdictSilent, "%s, %s, no byte of the answer in %s",
			stood, f.traffic(), display.Duration(f.timeout))
	case f.FirstByte > 0:
		set(d, event.VerdictSlow, "%s, first byte after %s, the answer was not complete in %s: %d bytes received",
			stood, display.Duration(f.FirstByte), display.Duration(f.timeout), f.Conn.Received)
	default: // the server speaks HTTP/2, but its health service does not answer
		set(d, event.VerdictSlow, "%s, gRPC connected (%d bytes received), no answer from the health service in %s",
			stood, f.Conn.Received, display.Duration(f.timeout))
	}
}

// exclude lists what was checked, or went well, and so is not the cause.
func (f *facts) exclude(d *event.ProbeOutcome) {
	if f.Connect > 0 {
		fact := "network: TCP connect took " + display.Duration(f.Connect)
		if f.Conn.RTT > 0 {
			fact += ", RTT " + display.Duration(f.Conn.RTT)
		}
		add(&d.Excluded, fact)
	}
	if f.TLS > 0 {
		add(&d.Excluded, "TLS: the handshake took "+display.Duration(f.TLS))
	}
	if f.listener.Present && !f.listener.Full() && d.Verdict != event.VerdictNotAccepted && d.Verdict != event.VerdictRefused {
		add(&d.Excluded, "listener present: "+f.listener.String())
	}
	if f.Connect > 0 {
		return
	}
	if f.route.Known && f.route.Errno == 0 && d.Verdict != event.VerdictNeighborFailed {
		add(&d.Excluded, f.route.String())
	}
	if f.neighbor.Known && !f.neighbor.Failed && !f.neighbor.Trying && f.neighbor.State != "none" {
		add(&d.Excluded, fmt.Sprintf("neighbour %s: %s", f.route.Via, f.neighbor.State))
	}
}

// traffic describes what was sent and acknowledged.
func (f *facts) traffic() string {
	switch {
	case f.Conn.Sent == 0:
		return "nothing was sent"
	case f.Conn.Acked >= f.Conn.Sent:
		return fmt.Sprintf("request acked (%d bytes)", f.Conn.Sent)
	}
	return fmt.Sprintf("request not acked (%d of %d bytes)", f.Conn.Acked, f.Conn.Sent)
}

func (f *facts) part() string {
	if f.Phase == netprobe.PhaseTLS {
		return "TLS handshake"
	}
	return "probe"
}

func (f *facts) tlsText() string {
	if f.errIs(io.EOF) {
		return "the peer closed the connection"
	}
	return strings.TrimPrefix(f.Err.Error(), "tls: ")
}

// statusText describes an answer whose status is a failure.
func (f *facts) statusText() string {
	text := fmt.Sprintf("HTTP status %s from %s after %s", f.Status, f.to, display.Duration(f.Took))
	if f.protocol == netprobe.GRPC {
		text = fmt.Sprintf("gRPC health at %s: %s after %s", f.to, f.Status, display.Duration(f.Took))
	}
	if said := strings.TrimSpace(f.Body); said != "" {
		text += ": " + display.Safe(firstLine(said), maxFact)
	}
	return text
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// maxEvidence is how many entries each list may have.
const maxEvidence = 8

func add(to *[]string, fact string) {
	if fact != "" && len(*to) < maxEvidence {
		*to = append(*to, display.Safe(fact, maxFact))
	}
}
