package vmtest

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// sockFault is one way in which connections to a target can fail. Its functions get networks that
// only this row uses.
type sockFault struct {
	name    string
	only4   bool                      // there is no IPv6 variant
	at      func(f sockFamily) string // the target's address; nil for the gateway's
	timeout time.Duration             // of a probe; 0 for kubelet's default
	request string                    // what a probe sends after connecting
	slow    bool                      // a probe waits for the whole response, and the target has a time limit for it
	inject  func(l *sockLab)
	heal    func(l *sockLab)
	want    func(l *sockLab) sockWant
}

// sockWant is the expected content of each event of a row. Regular expressions are matched against
// a list of lines; an empty one matches anything.
type sockWant struct {
	verdict  string
	errno    []string // one of these; if empty, there is none
	evidence string
	excluded string
	queue    func(length, limit uint32) bool // of the listener; nil for any
}

// always is for expectations that are the same for all kernels and IP versions.
func always(w sockWant) func(*sockLab) sockWant { return func(*sockLab) sockWant { return w } }

// phase returns the phase of a connection in which the verdict occurs.
func (w *sockWant) phase() string {
	switch w.verdict {
	case event.VerdictReset, event.VerdictSilent, event.VerdictSlow, event.VerdictNotAccepted:
		return "established"
	}
	return "connect"
}

// errnos returns the possible errnos.
func (w *sockWant) errnos() []string {
	if len(w.errno) == 0 {
		return []string{""}
	}
	return w.errno
}

// rule returns the rule that fires for the verdict.
func (w *sockWant) rule() string {
	switch w.verdict {
	case event.VerdictTimeout:
		return "probe-target-timeout"
	case event.VerdictSilent:
		return "probe-target-silent"
	case event.VerdictNoRoute, event.VerdictUnreachable, event.VerdictNeighborFailed:
		return "probe-target-no-route"
	case event.VerdictPortsExhausted:
		return "probe-source-ports-exhausted"
	}
	return "probe-target-" + w.verdict
}

// Addresses of targets.
func atAbsent(f sockFamily) string { return f.absent }
func atFar(f sockFamily) string    { return f.far }

func sockFaults() []sockFault {
	return slices.Concat(listenerFaults(), routeFaults(), icmpFaults(), firewallFaults())
}

// listenerFaults returns faults of the process that should respond, and of the prober itself.
func listenerFaults() []sockFault {
	full := always(sockWant{
		verdict: event.VerdictAcceptQueueFull, evidence: "accept queue of the listener: 1/0", excluded: "via probe0",
		queue: func(length, limit uint32) bool { return length == 1 && limit == 0 },
	})
	return []sockFault{
		{
			name:   "refused",
			inject: func(*sockLab) {},
			heal:   func(l *sockLab) { l.serve(netlab.Echo) },
			want: always(sockWant{
				verdict: event.VerdictRefused, errno: []string{"ECONNREFUSED"}, evidence: "a reset answered the SYN\nno listener on ",
			}),
		},
		{
			name: "accept-queue-full",
			inject: func(l *sockLab) {
				l.listen(0)
				l.queued = l.prober.Dial(l.at.String())
			},
			heal: func(l *sockLab) { l.drain() },
			want: full,
		},
		{
			name: "accept-queue-full-any-address", only4: true,
			inject: func(l *sockLab) {
				l.listener = l.target.Listen("[::]:80", 0)
				l.queued = l.prober.Dial(l.at.String())
			},
			heal: func(l *sockLab) { l.drain() },
			want: full,
		},
		{
			name: "reset", request: "ping",
			inject: func(l *sockLab) {
				l.serve(func(c net.Conn) {
					_, _ = c.Read(make([]byte, 4))
					_ = c.(*net.TCPConn).SetLinger(0)
				})
			},
			heal: func(l *sockLab) { l.replace() },
			want: always(sockWant{verdict: event.VerdictReset, errno: []string{"ECONNRESET"}, evidence: "a reset ended the connection"}),
		},
		{
			name: "silent", request: "ping",
			inject: func(l *sockLab) {
				// A hanging process does not notice that the prober has closed the connection.
				hangs := make(chan struct{})
				l.mend = sync.OnceFunc(func() { close(hangs) })
				l.t.Cleanup(l.mend)
				l.serve(func(net.Conn) { <-hangs })
			},
			heal: func(l *sockLab) { l.mend(); l.replace() },
			want: always(sockWant{
				verdict: event.VerdictSilent, evidence: "the request was acknowledged: 4 bytes\nno byte came back",
				excluded: "not accepted: a process has the connection",
			}),
		},
		{
			name: "slow", request: "ping", slow: true,
			inject: func(l *sockLab) {
				hangs := make(chan struct{})
				l.mend = sync.OnceFunc(func() { close(hangs) })
				l.t.Cleanup(l.mend)
				l.serve(func(c net.Conn) {
					_, _ = c.Read(make([]byte, 4))
					_, _ = c.Write([]byte("begun"))
					<-hangs
				})
			},
			heal: func(l *sockLab) { l.mend(); l.replace() },
			want: always(sockWant{
				verdict:  event.VerdictSlow,
				evidence: "the opener closed after .*, before the answer was complete; its limit is 1s\nthe request was acknowledged: 4 bytes\n5 bytes came back",
				excluded: "not accepted: a process has the connection",
			}),
		},
		{
			name: "not-accepted", request: "ping",
			inject: func(l *sockLab) { l.listen(2 * faults) },
			heal:   func(l *sockLab) { l.accept() },
			want: always(sockWant{
				verdict:  event.VerdictNotAccepted,
				evidence: "the listener has not accepted the connection\nlistener: queue [0-9]+/46\nthe request was acknowledged",
				queue:    func(length, limit uint32) bool { return length >= 1 && length <= faults && limit == 2*faults },
			}),
		},
		{
			name: "ports-exhausted",
			inject: func(l *sockLab) {
				l.listen(2)
				l.prober.Sysctl("net/ipv4/ip_local_port_range", "40000 40000")
				l.prober.Dial(l.at.String())
			},
			heal: func(l *sockLab) {
				l.accept()
				l.prober.Sysctl("net/ipv4/ip_local_port_range", "40000 40100")
			},
			// 7.3 may detect it before the socket tries to send.
			want: always(sockWant{
				verdict: event.VerdictPortsExhausted, errno: []string{"", "EADDRNOTAVAIL"}, evidence: "no free local port", excluded: "via probe0",
			}),
		},
	}
}
